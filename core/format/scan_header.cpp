#include "format/scan_header.h"

#include <simdjson.h>

#include <cstring>

#include "base/check.h"
#include "base/little_endian.h"
#include "format/header.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace st {
namespace {

// A NUL stands behind the text, which is part of nothing that is taken: so nothing is
// taken beyond the end, and nobody need look for it.
class Scanner {
 public:
  Scanner(std::string_view json, IndexBuilder &builder)
      : at_(json.data()), end_(json.data() + json.size()), builder_(builder) {}

  bool entry(bool *metadata_seen, bool *more);
  void space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }
  bool at_end() const { return at_ == end_; }
  size_t position(std::string_view window) const { return static_cast<size_t>(at_ - window.data()); }
  // The next token, if it is this one.
  bool take(char c) {
    if (*at_ != c) {
      if (*at_ > ' ') return false;
      space();
      if (*at_ != c) return false;
    }
    ++at_;
    return true;
  }
  // Exactly these bytes, as the stock writer spells them.
  template <size_t N>
  bool literal(const char (&text)[N]) {
    if (std::memcmp(at_, text, N - 1) != 0) return false;  // of the padding it reads no more than there is
    at_ += N - 1;
    return true;
  }

 private:
  // What a header says of a tensor, but for the shape, which goes to the builder.
  struct Value {
    Dtype dtype{};
    uint64_t begin = 0, end = 0;
  };

  bool string(std::string_view *out);
  bool rest_of_string(std::string_view *out);
  bool again(const char *before, unsigned n);
  bool number(uint64_t *out);
  bool dtype(Value *out);
  bool dims();
  bool shape();
  bool begin_offset(uint64_t *out);
  bool end_offset(uint64_t *out);
  bool offsets(Value *out);
  bool stock_value(Value *out);
  bool any_value(Value *out);
  bool value_of(Value *out);
  bool metadata();
  bool end_of_entry(bool *more);

  const char *at_;
  const char *const end_;
  IndexBuilder &builder_;
  // The dtype of the tensor before, and how it was spelt.
  Dtype last_dtype_{};
  const char *last_dtype_text_ = nullptr;
  unsigned last_dtype_size_ = 0;
  uint64_t last_end_ = 0;
  const char *last_end_text_ = nullptr;
  unsigned last_end_digits_ = 0;
};

// How many of the next bytes belong to a plain string, which a quote, a backslash
// or a control character ends; `step` if all do.
#ifdef __SSE2__
constexpr unsigned step = 64;  // most names are shorter, so that no branch depends on their length
uint64_t ends_of_16(const char *at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
  const __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
  const __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)));
}
unsigned plain_bytes(const char *at) {
  const uint64_t ends =
      ends_of_16(at) | ends_of_16(at + 16) << 16 | ends_of_16(at + 32) << 32 | ends_of_16(at + 48) << 48;
  return ends ? static_cast<unsigned>(__builtin_ctzll(ends)) : step;
}
#else
constexpr unsigned step = 8;
unsigned plain_bytes(const char *at) {
  const uint64_t word = load_u64le(at);  // the byte that comes first is the lowest, on any machine
  // The classic "has a zero byte", "has a byte less than n".
  constexpr uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  const uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
  const uint64_t ends =
      (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word)) & highs;
  return ends ? static_cast<unsigned>(__builtin_ctzll(ends)) / 8 : step;
}
#endif

// The same n bytes as before, here? They are taken then. n is at least 1. Compares words, not bytes, and where they
// end does not depend on what they are: the processor goes on meanwhile.
bool Scanner::again(const char *before, unsigned n) {
  if (n > 16) return false;
  const uint64_t was[2] = {load_u64le(before), load_u64le(before + 8)};
  const uint64_t is[2] = {load_u64le(at_), load_u64le(at_ + 8)};
  const bool same =
      n <= 8 ? (was[0] ^ is[0]) << (64 - 8 * n) == 0 : was[0] == is[0] && (was[1] ^ is[1]) << (128 - 8 * n) == 0;
  if (same) at_ += n;
  return same;
}

static_assert(step <= header_padding);

bool Scanner::string(std::string_view *out) {
  return take('"') && rest_of_string(out);
}

bool Scanner::rest_of_string(std::string_view *out) {
  const char *begin = at_;
  for (unsigned plain = step; plain == step;) {
    plain = plain_bytes(at_);  // the padding lets us read past the end
    at_ += plain;
  }
  if (*at_ != '"') return false;
  *out = {begin, static_cast<size_t>(at_ - begin)};
  ++at_;
  return true;
}

// 18 digits always fit; a leading zero is no JSON; what may follow is for the caller to take, and is never part of a
// number. Digit by digit: the processor guesses where the number ends, and reads on meanwhile. Arithmetic on eight
// digits at once would make all that follows wait for the end.
bool Scanner::number(uint64_t *out) {
  if (*at_ <= ' ') space();
  const char *begin = at_;
  uint64_t n = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*at_) - '0') <= 9; ++at_) n = n * 10 + digit;
  *out = n;
  const auto digits = at_ - begin;
  return digits >= 1 && digits <= 18 && (*begin != '0' || digits == 1);
}

// Most tensors begin where the one before ended.
bool Scanner::begin_offset(uint64_t *out) {
  const char *digits = at_;
  if (last_end_digits_ != 0 && again(last_end_text_, last_end_digits_) && (*at_ < '0' || *at_ > '9')) {
    *out = last_end_;
    return true;
  }
  at_ = digits;
  return number(out);
}

bool Scanner::end_offset(uint64_t *out) {
  if (*at_ <= ' ') space();
  const char *digits = at_;
  if (!number(out)) return false;
  last_end_ = *out;
  last_end_text_ = digits;
  last_end_digits_ = static_cast<unsigned>(at_ - digits);
  return true;
}

bool Scanner::offsets(Value *out) {
  return take('[') && begin_offset(&out->begin) && take(',') && end_offset(&out->end) && take(']');
}

bool Scanner::dims() {
  do {
    uint64_t dim;
    if (!number(&dim)) return false;
    builder_.add_dim(dim);
  } while (take(','));
  return true;
}

bool Scanner::shape() {
  if (!take('[')) return false;
  return take(']') || (dims() && take(']'));
}

// Most tensors have the dtype of the one before.
bool Scanner::dtype(Value *out) {
  if (last_dtype_size_ == 0 || !again(last_dtype_text_, last_dtype_size_)) {
    std::string_view name;
    if (!string(&name)) return false;
    const auto known = parse_dtype(name);
    if (!known) return false;
    last_dtype_ = *known;
    last_dtype_text_ = name.data() - 1;  // with its quotes
    last_dtype_size_ = static_cast<unsigned>(name.size() + 2);
  }
  out->dtype = last_dtype_;
  return true;
}

// As the stock writer spells it: its order, and no space. So are most tensors, and a literal is one comparison.
bool Scanner::stock_value(Value *out) {
  return literal(":{\"dtype\":") && dtype(out) && literal(",\"shape\":[") && (*at_ == ']' || dims()) &&
         literal("],\"data_offsets\":[") && begin_offset(&out->begin) && literal(",") && end_offset(&out->end) &&
         literal("]}");
}

bool Scanner::any_value(Value *out) {
  if (!take(':') || !take('{')) return false;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  for (int field = 0; field < 3; ++field) {
    if (field > 0 && !take(',')) return false;
    std::string_view key;
    if (!string(&key) || !take(':')) return false;
    if (key == "dtype" && !has_dtype) {
      has_dtype = true;
      if (!dtype(out)) return false;
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      if (!shape()) return false;
    } else if (key == "data_offsets" && !has_offsets) {
      has_offsets = true;
      if (!offsets(out)) return false;
    } else {
      return false;
    }
  }
  return take('}');
}

bool Scanner::value_of(Value *out) {
  const char *const begin = at_;
  if (stock_value(out)) return true;
  at_ = begin;
  builder_.drop_shape();
  *out = {};
  return any_value(out);
}

bool Scanner::metadata() {
  if (!take(':') || !take('{')) return false;
  if (take('}')) return true;
  do {
    std::string_view key, value;
    if (!string(&key) || !take(':') || !string(&value)) return false;
    builder_.add_metadata(key, value);
  } while (take(','));
  return take('}');
}

// Whether another entry follows, or the end.
bool Scanner::end_of_entry(bool *more) {
  *more = take(',');
  return *more || take('}');
}

// One entry: a tensor, or the metadata. The builder has it only if it is whole.
bool Scanner::entry(bool *metadata_seen, bool *more) {
  std::string_view name;
  if (!string(&name)) return false;
  if (name != "__metadata__") {
    builder_.begin_tensor(name);
    Value value;
    if (value_of(&value) && end_of_entry(more)) {
      builder_.end_tensor(value.dtype, value.begin, value.end);
      return true;
    }
    builder_.drop_tensor();
    return false;
  }
  if (*metadata_seen) return false;
  *metadata_seen = metadata() && end_of_entry(more);
  if (!*metadata_seen) builder_.drop_metadata();
  return *metadata_seen;
}

}  // namespace

// With all it calls in one, the scanner lives in registers.
[[gnu::flatten]] std::optional<size_t> HeaderScanner::take(std::string_view window, bool last) {
  ST_ASSERT(window.data()[window.size()] == '\0');
  Scanner scanner(window, builder_);
  size_t taken = 0;
  if (state_ == State::before) {
    if (!scanner.take('{')) return std::nullopt;
    state_ = scanner.take('}') ? State::after : State::entries;
    taken = scanner.position(window);
  }
  while (state_ == State::entries) {
    bool more = false;
    if (!scanner.entry(&metadata_seen_, &more)) {
      // Perhaps only cut by the window's end: it comes again at the next one's
      // beginning, if it is not there already.
      if (last || taken == 0) return std::nullopt;
      break;
    }
    taken = scanner.position(window);
    if (!more) state_ = State::after;
  }
  if (state_ == State::after) {
    scanner.space();
    if (!scanner.at_end()) return std::nullopt;
    taken = window.size();
  }
  if (!simdjson::validate_utf8(window.data(), taken)) return std::nullopt;
  return taken;
}

bool scan_header(std::string_view json, IndexBuilder &builder) {
  HeaderScanner scanner(builder);
  return scanner.take(json, true) && scanner.finished();
}

}  // namespace st
