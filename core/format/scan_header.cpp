#include "format/scan_header.h"

#include <simdjson.h>

#include <cstring>

#include "base/check.h"
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

  bool entry(bool *metadata_seen);
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
  bool string(std::string_view *out);
  bool rest_of_string(std::string_view *out);
  bool again(const char *before, unsigned n);
  bool dtype(std::optional<Dtype> *out);
  bool number(uint64_t *out);
  bool offsets(uint64_t *begin, uint64_t *end);
  bool metadata();
  bool tensor(std::string_view name);
  bool shape();

  const char *at_;
  const char *const end_;
  IndexBuilder &builder_;
  // The dtype of the tensor before, and how it was spelt.
  std::optional<Dtype> last_dtype_;
  const char *last_dtype_text_ = nullptr;
  unsigned last_dtype_size_ = 0;
  uint64_t last_end_ = 0;
  const char *last_end_text_ = nullptr;
  unsigned last_end_digits_ = 0;
};

// How many of the next bytes belong to a plain string, which a quote, a backslash
// or a control character ends; `step` if all do.
#ifdef __SSE2__
constexpr unsigned step = 16;
unsigned plain_bytes(const char *at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
  const __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
  const __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
  const auto ends = static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)));
  return ends ? static_cast<unsigned>(__builtin_ctz(ends)) : step;
}
#else
constexpr unsigned step = 8;
unsigned plain_bytes(const char *at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
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
  uint64_t was[2], is[2];
  std::memcpy(was, before, 16);
  std::memcpy(is, at_, 16);
  const bool same =
      n <= 8 ? (was[0] ^ is[0]) << (64 - 8 * n) == 0 : was[0] == is[0] && (was[1] ^ is[1]) << (128 - 8 * n) == 0;
  if (same) at_ += n;
  return same;
}

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

// The decimal digits at the beginning of eight bytes: how many, and their value.
// Without a branch on their count, which no predictor could guess.
struct Digits {
  unsigned count;
  uint64_t value;
};

Digits leading_digits(const char *at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  word ^= 0x3030303030303030;  // a digit is its value now, anything else is above 9
  const uint64_t others = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
  const unsigned count = others ? static_cast<unsigned>(__builtin_ctzll(others)) / 8 : 8;
  if (count == 0) return {0, 0};
  word <<= 64 - 8 * count;         // zeros before them
  word = word * 10 + (word >> 8);  // pairs, then pairs of pairs
  constexpr uint64_t pairs = 0x000000FF000000FF;
  return {count, ((word & pairs) * 0x000F424000000064 + ((word >> 16) & pairs) * 0x0000271000000001) >> 32};
}

bool Scanner::number(uint64_t *out) {
  if (*at_ <= ' ') space();
  const char *begin = at_;
  Digits more = leading_digits(at_);  // the padding lets us read past the end
  uint64_t n = more.value;
  at_ += more.count;
  while (more.count == 8 && at_ - begin <= 16) {
    static constexpr uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    more = leading_digits(at_);
    n = n * tens[more.count] + more.value;
    at_ += more.count;
  }
  const auto digits = at_ - begin;
  *out = n;
  // 18 digits always fit; a leading zero is no JSON; what may follow is for the
  // caller to take, and is never part of a number.
  return digits >= 1 && digits <= 18 && (*begin != '0' || digits == 1);
}

// Both offsets. Most tensors begin where the one before ended.
bool Scanner::offsets(uint64_t *begin, uint64_t *end) {
  if (!take('[')) return false;
  const char *digits = at_;
  if (last_end_digits_ != 0 && again(last_end_text_, last_end_digits_) && (*at_ < '0' || *at_ > '9')) {
    *begin = last_end_;
  } else {
    at_ = digits;
    if (!number(begin)) return false;
  }
  if (!take(',')) return false;
  if (*at_ <= ' ') space();
  last_end_text_ = at_;
  if (!number(end)) return false;
  last_end_digits_ = static_cast<unsigned>(at_ - last_end_text_);
  last_end_ = *end;
  return take(']');
}

bool Scanner::shape() {
  if (!take('[')) return false;
  if (take(']')) return true;
  do {
    uint64_t dim;
    if (!number(&dim)) return false;
    builder_.add_dim(dim);
  } while (take(','));
  return take(']');
}

// Most tensors have the dtype of the one before.
bool Scanner::dtype(std::optional<Dtype> *out) {
  if (!last_dtype_ || !again(last_dtype_text_, last_dtype_size_)) {
    std::string_view name;
    if (!string(&name)) return false;
    last_dtype_ = parse_dtype(name);
    last_dtype_text_ = name.data() - 1;  // with its quotes
    last_dtype_size_ = static_cast<unsigned>(name.size() + 2);
  }
  *out = last_dtype_;
  return out->has_value();
}

bool Scanner::tensor(std::string_view name) {
  builder_.begin_tensor(name);
  std::optional<Dtype> type;
  uint64_t begin = 0, end = 0;
  bool has_shape = false, has_offsets = false;
  if (!take('{')) return false;
  for (int field = 0; field < 3; ++field) {
    if (field > 0 && !take(',')) return false;
    enum { unknown, is_dtype, is_shape, is_offsets } key = unknown;
    if (literal("\"dtype\":"))
      key = is_dtype;
    else if (literal("\"shape\":"))
      key = is_shape;
    else if (literal("\"data_offsets\":"))
      key = is_offsets;
    else {
      std::string_view name;
      if (!string(&name) || !take(':')) return false;
      if (name == "dtype")
        key = is_dtype;
      else if (name == "shape")
        key = is_shape;
      else if (name == "data_offsets")
        key = is_offsets;
    }
    if (key == is_dtype && !type) {
      if (!dtype(&type)) return false;
    } else if (key == is_shape && !has_shape) {
      has_shape = true;
      if (!shape()) return false;
    } else if (key == is_offsets && !has_offsets) {
      has_offsets = true;
      if (!offsets(&begin, &end)) return false;
    } else {
      return false;
    }
  }
  if (!take('}')) return false;
  builder_.end_tensor(*type, begin, end);
  return true;
}

bool Scanner::metadata() {
  if (!take('{')) return false;
  if (take('}')) return true;
  do {
    std::string_view key, value;
    if (!string(&key) || !take(':') || !string(&value)) return false;
    builder_.add_metadata(key, value);
  } while (take(','));
  return take('}');
}

// One entry: a tensor, or the metadata.
bool Scanner::entry(bool *metadata_seen) {
  std::string_view name;
  if (!string(&name) || !take(':')) return false;
  if (name != "__metadata__") return tensor(name);
  if (*metadata_seen) return false;
  *metadata_seen = true;
  return metadata();
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
    const IndexBuilder::Mark mark = builder_.mark();
    bool metadata_seen = metadata_seen_;
    bool whole = scanner.entry(&metadata_seen);
    bool more = false;
    if (whole) {
      more = scanner.take(',');
      whole = more || scanner.take('}');
    }
    if (!whole) {
      // Perhaps only cut by the window's end: it comes again at the next one's
      // beginning, if it is not there already.
      builder_.back_to(mark);
      if (last || taken == 0) return std::nullopt;
      break;
    }
    metadata_seen_ = metadata_seen;
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
