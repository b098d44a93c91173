#include "remote/crc.h"

#include <array>
#include <bit>
#include <cstring>

#include "remote/crc_fold.h"

namespace st::remote {
namespace {

// Polynomials over one bit: bit 0 is the highest power, as both CRCs have it ("reflected").
struct Polynomial {
  uint64_t bits;
  unsigned width;

  constexpr uint64_t ones() const { return ~uint64_t{0} >> (64 - width); }
  constexpr uint64_t one() const { return uint64_t{1} << (width - 1); }  // x^0
  constexpr uint64_t times_x(uint64_t a) const { return a & 1 ? a >> 1 ^ bits : a >> 1; }
  constexpr uint64_t product(uint64_t a, uint64_t b) const {
    uint64_t sum = 0;
    for (uint64_t power = one(); power != 0; power >>= 1, b = times_x(b))
      if (a & power) sum ^= b;
    return sum;
  }
  constexpr uint64_t power(unsigned n) const {
    uint64_t out = one();
    for (; n > 0; --n) out = times_x(out);
    return out;
  }
  constexpr FoldBy fold_by(unsigned bits) const {
    return {power(bits + 63) << (64 - width), power(bits - 1) << (64 - width)};
  }
};

constexpr Folds folds_of(Polynomial p) {
  return {p.fold_by(2048), p.fold_by(512), p.fold_by(128)};
}

constexpr Polynomial polynomials[] = {{0x82F63B78, 32}, {0x9A6C9329AC4BC9B5, 64}, {0xEDB88320, 32}};

// [k][b]: what byte b leaves when k bytes of zeros follow. So eight bytes are taken at a time.
using Table = std::array<std::array<uint64_t, 256>, 8>;

constexpr Table table_of(Polynomial p) {
  Table out = {};
  for (uint64_t b = 0; b < 256; ++b) {
    uint64_t rest = b;
    for (int bit = 0; bit < 8; ++bit) rest = p.times_x(rest);
    out[0][b] = rest;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) out[k][b] = out[k - 1][b] >> 8 ^ out[0][out[k - 1][b] & 0xff];
  return out;
}

constexpr Table tables[] = {table_of(polynomials[0]), table_of(polynomials[1]), table_of(polynomials[2])};

// What follows the bytes of that CRC.
uint64_t by_table(Crc kind, uint64_t crc, std::span<const std::byte> bytes) {
  const Table &table = tables[static_cast<size_t>(kind)];
  size_t i = 0;
  if constexpr (std::endian::native == std::endian::little)
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t next;
      std::memcpy(&next, bytes.data() + i, 8);
      next ^= crc;
      crc = 0;
      for (size_t k = 0; k < 8; ++k) crc ^= table[7 - k][next >> 8 * k & 0xff];
    }
  for (; i < bytes.size(); ++i) crc = crc >> 8 ^ table[0][(crc ^ static_cast<uint64_t>(bytes[i])) & 0xff];
  return crc;
}

}  // namespace

uint64_t crc_of(Crc kind, std::span<const std::byte> bytes, uint64_t before) {
  constexpr size_t blocks = 64, many = 4 * blocks;
  const Polynomial p = polynomials[static_cast<size_t>(kind)];
  uint64_t crc = before ^ p.ones();
  if (bytes.size() >= many && can_fold()) {
    static constexpr Folds folds[] = {folds_of(polynomials[0]), folds_of(polynomials[1]), folds_of(polynomials[2])};
    const size_t folded = bytes.size() / blocks * blocks;
    std::byte block[16];
    fold(bytes.first(folded), crc, folds[static_cast<size_t>(kind)], block);
    crc = by_table(kind, 0, block);
    bytes = bytes.subspan(folded);
  }
  return by_table(kind, crc, bytes) ^ p.ones();
}

// The bits before and after each part cancel out, so the first part is as if zeros followed it: times x^(8 n).
uint64_t joined(Crc kind, uint64_t first, uint64_t second, uint64_t second_bytes) {
  const Polynomial p = polynomials[static_cast<size_t>(kind)];
  uint64_t power = p.times_x(p.one());  // x, and its squares
  for (int i = 0; i < 3; ++i) power = p.product(power, power);
  for (uint64_t n = second_bytes; n > 0; n >>= 1, power = p.product(power, power))
    if (n & 1) first = p.product(power, first);
  return first ^ second;
}

}  // namespace st::remote
