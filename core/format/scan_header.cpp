#include "format/scan_header.h"

#include <simdjson.h>

#include <cstring>

namespace st {
namespace {

class Scanner {
 public:
  Scanner(std::string_view json, IndexBuilder &builder)
      : at_(json.data()), end_(json.data() + json.size()), builder_(builder) {}

  bool entry(bool *metadata_seen);
  void space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool at_end() const { return at_ == end_; }
  size_t position(std::string_view window) const { return static_cast<size_t>(at_ - window.data()); }
  // The next token, if it is this one.
  bool take(char c) {
    if (at_ != end_ && *at_ == c) {
      ++at_;
      return true;
    }
    space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  // Exactly these bytes, as the stock writer spells them.
  template <size_t N>
  bool literal(const char (&text)[N]) {
    if (static_cast<size_t>(end_ - at_) < N - 1 || std::memcmp(at_, text, N - 1) != 0) return false;
    at_ += N - 1;
    return true;
  }

 private:
  bool string(std::string_view *out);
  bool rest_of_string(std::string_view *out);
  bool dtype(std::optional<Dtype> *out);
  bool number(uint64_t *out);
  bool metadata();
  bool tensor(std::string_view name);
  bool shape();

  const char *at_;
  const char *const end_;
  IndexBuilder &builder_;
  std::string_view last_dtype_name_;
  std::optional<Dtype> last_dtype_;
};

// Bytes of a word that end a plain string: a quote, a backslash, or a control
// character (the classic "has a zero byte", "has a byte less than n").
uint64_t ends_of(uint64_t word) {
  constexpr uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  const uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
  return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word)) & highs;
}

bool Scanner::string(std::string_view *out) {
  return take('"') && rest_of_string(out);
}

bool Scanner::rest_of_string(std::string_view *out) {
  const char *begin = at_;
  for (;; at_ += 8) {
    uint64_t word;
    std::memcpy(&word, at_, 8);  // the padding lets us read past the end
    if (const uint64_t ends = ends_of(word)) {
      at_ += __builtin_ctzll(ends) / 8;
      break;
    }
    if (at_ >= end_) return false;
  }
  if (at_ >= end_ || *at_ != '"') return false;
  *out = {begin, static_cast<size_t>(at_ - begin)};
  ++at_;
  return true;
}

bool Scanner::number(uint64_t *out) {
  space();
  const char *begin = at_;
  uint64_t n = 0;
  while (at_ != end_ && *at_ >= '0' && *at_ <= '9') n = n * 10 + static_cast<uint64_t>(*at_++ - '0');
  const auto digits = at_ - begin;
  *out = n;
  // 18 digits always fit; a leading zero is no JSON; what may follow is for the
  // caller to take, and is never part of a number.
  return digits >= 1 && digits <= 18 && (*begin != '0' || digits == 1);
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
  std::string_view name;
  if (!string(&name)) return false;
  if (name != last_dtype_name_) {
    last_dtype_ = parse_dtype(name);
    last_dtype_name_ = name;
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
      if (!take('[') || !number(&begin) || !take(',') || !number(&end) || !take(']')) return false;
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

std::optional<size_t> HeaderScanner::take(std::string_view window, bool last) {
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
