#include "slice.h"

#include <algorithm>
#include <charconv>

#include "cast.h"
#include "failure.h"
#include "interrupt.h"
#include "number.h"
#include "text.h"

namespace stctl {
namespace {

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

int64_t number(const std::string &part, int64_t if_empty, const std::string &slice) {
  if (part.empty()) return if_empty;
  int64_t value = 0;
  const char *end = part.data() + part.size();
  const std::from_chars_result result = std::from_chars(part.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    const bool is_large = result.ec == std::errc::result_out_of_range && result.ptr == end;
    throw UsageFailure(fmt::format("'{}' is no slice: '{}' is {}", escape(slice), escape(part),
                                   is_large ? "too large a number" : "no number"));
  }
  return value;
}

st_range parse_range(const std::string &text, const std::string &slice) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() > 3) throw UsageFailure(fmt::format("'{}' is no slice: too many ':'", escape(slice)));
  const int64_t step = parts.size() > 2 ? number(parts[2], 1, slice) : 1;
  if (step == 0) throw UsageFailure(fmt::format("'{}' is no slice: a step is 0", escape(slice)));
  return {number(parts[0], step > 0 ? 0 : INT64_MAX, slice), number(parts[1], step > 0 ? INT64_MAX : INT64_MIN, slice),
          step};
}

}  // namespace

void refuse_empty_slice(const Option &option, const std::string &text) {
  if (option.given() && text.find_first_not_of(' ') == text.npos) {
    throw UsageFailure("--slice is empty; without it, the whole tensor is taken");
  }
}

Slice::Slice(const File &file, size_t index, const std::string &text, st_dtype dtype)
    : file_(file), tensor_(file.at(index)), dtype_(dtype ? dtype : tensor_.dtype) {
  const size_t rank = tensor_.rank;
  std::vector<std::string> parts;
  if (!text.empty()) {
    std::string_view inside = text;
    if (inside.size() > 1 && inside.front() == '[' && inside.back() == ']') {
      inside = inside.substr(1, inside.size() - 2);
    }
    parts = split(inside, ',');
  }
  const auto dots = std::find(parts.begin(), parts.end(), "...");
  if (dots != parts.end()) {
    const size_t given = parts.size() - 1;
    const size_t missing = rank > given ? rank - given : 0;
    parts.insert(parts.erase(dots), missing, ":");
  }
  if (parts.size() > rank) {
    throw Failure(exit_failed,
                  fmt::format("slice '{}' has {} for the {} of '{}'", escape(text), counted(parts.size(), "part"),
                              counted(rank, "dimension"), escape(name_of(tensor_))));
  }
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = static_cast<int64_t>(std::min<uint64_t>(tensor_.shape[d], INT64_MAX));
    const bool indexed = d < parts.size() && parts[d].find(':') == std::string::npos;
    st_range range = ST_RANGE_ALL;
    if (indexed) {
      if (parts[d].empty()) throw UsageFailure(fmt::format("'{}' is no slice: a part is empty", escape(text)));
      const int64_t at = number(parts[d], 0, text);
      if (at < -size || at >= size) {
        throw Failure(exit_failed,
                      fmt::format("index {} of slice '{}' is outside dimension {} of '{}', whose size is {}", at,
                                  escape(text), d, escape(name_of(tensor_)), tensor_.shape[d]));
      }
      const int64_t start = at < 0 ? at + size : at;
      range = {start, start + 1, 1};
    } else if (d < parts.size()) {
      range = parse_range(parts[d], text);
      // As Python clips it, so that part() can count from it.
      if (range.start < 0) range.start += size;
      const int64_t lowest = range.step > 0 ? 0 : -1;
      const int64_t highest = range.step > 0 ? size : size - 1;
      range.start = std::clamp(range.start, lowest, std::max(lowest, highest));
      if (range.start < 0) range = {0, 0, 1};  // nothing left
    }
    ranges_.push_back(range);
    indexed_.push_back(indexed);
  }
  counts_.resize(rank);
  check(st_slice_shape(file.get(), tensor_.name, tensor_.name_len, ranges_.data(), rank, counts_.data(), rank, nullptr,
                       &nbytes_));
  elements_ = elements_of(tensor_.dtype, nbytes_);
}

std::vector<uint64_t> Slice::shape() const {
  std::vector<uint64_t> shape;
  for (size_t d = 0; d < counts_.size(); ++d) {
    if (!indexed_[d]) shape.push_back(counts_[d]);
  }
  return shape;
}

st_range Slice::range_of(size_t d, uint64_t from, uint64_t to) const {
  const st_range &whole = ranges_[d];
  const int64_t first = whole.start + static_cast<int64_t>(from) * whole.step;
  const int64_t last = whole.start + static_cast<int64_t>(to - 1) * whole.step;
  const int64_t stop = whole.step > 0 ? last + 1 : last - 1;
  return {first, stop < 0 ? INT64_MIN : stop, whole.step};
}

void Slice::read_part(const std::vector<st_range> &ranges, uint64_t nbytes, std::string &into) const {
  throw_if_interrupted();
  into.resize(nbytes);
  check(st_read_slice(file_.get(), tensor_.name, tensor_.name_len, ranges.data(), ranges.size(), into.data(),
                      into.size(), nullptr));
}

uint64_t Slice::bytes_below(size_t d) const {
  uint64_t bits = st_dtype_bits(tensor_.dtype);
  for (; d < counts_.size(); ++d) bits *= counts_[d];  // at most 8 * nbytes_, as no count is 0
  return bits % 8 == 0 ? bits / 8 : 0;
}

void Slice::read(uint64_t piece, const std::function<void(std::string_view)> &use) const {
  if (dtype_ == tensor_.dtype) return read_pieces(piece, use);
  const bool whole = st_dtype_bits(dtype_) < 8;  // a piece might end inside a byte
  read_pieces(whole ? UINT64_MAX : piece, [&](std::string_view bytes) { use(cast(tensor_.dtype, bytes, dtype_)); });
}

void Slice::read_pieces(uint64_t piece, const std::function<void(std::string_view)> &use) const {
  std::string buffer;
  each_part(piece, [&](const Part &part) {
    read_part(part.ranges, part.nbytes, buffer);
    use(buffer);
  });
}

void Slice::each_part(uint64_t piece, const std::function<void(const Part &)> &use) const {
  if (nbytes_ == 0) return;
  Part part = {ranges_, counts_, nbytes_};
  // Dimension d is cut; those before it are gone through one entry at a time.
  const size_t rank = counts_.size();
  size_t d = 0;
  while (d < rank && bytes_below(d + 1) > piece) ++d;
  if (nbytes_ <= piece || d == rank || bytes_below(d + 1) == 0) return use(part);
  const uint64_t below = bytes_below(d + 1);
  const uint64_t at_once = piece / below;
  std::vector<uint64_t> at(d, 0);
  std::fill_n(part.counts.begin(), d, uint64_t{1});
  while (true) {
    for (size_t outer = 0; outer < d; ++outer) part.ranges[outer] = range_of(outer, at[outer], at[outer] + 1);
    for (uint64_t from = 0; from < counts_[d]; from += at_once) {
      const uint64_t to = std::min(from + at_once, counts_[d]);
      part.ranges[d] = range_of(d, from, to);
      part.counts[d] = to - from;
      part.nbytes = (to - from) * below;
      use(part);
    }
    size_t outer = d;
    while (outer > 0 && ++at[outer - 1] == counts_[outer - 1]) at[--outer] = 0;
    if (outer == 0) return;
  }
}

Slice::Corner Slice::corner(uint64_t edge) const {
  Corner corner;
  const size_t rank = counts_.size();
  std::vector<uint64_t> kept(rank);
  for (size_t d = 0; d < rank; ++d) {
    kept[d] = std::min(counts_[d], 2 * edge);
    if (indexed_[d]) continue;
    corner.shape.push_back(kept[d]);
    corner.cut.push_back(counts_[d] > 2 * edge);
  }
  if (nbytes_ == 0) return corner;

  // Elements of whole bytes are read a corner at a time: of each cut dimension the first half or the last. Others
  // can't be cut anywhere, so all are read, as one "half".
  const bool whole = st_dtype_bits(tensor_.dtype) < 8;
  std::vector<uint64_t> from(rank), to(rank), half(rank);
  uint64_t cells = 1;
  for (uint64_t n : kept) cells *= n;
  corner.cells.resize(cells);
  std::string buffer;
  while (true) {
    std::vector<st_range> ranges = ranges_;
    uint64_t elements = 1;
    for (size_t d = 0; d < rank; ++d) {
      const bool cut = !whole && counts_[d] > 2 * edge;
      from[d] = half[d] ? counts_[d] - edge : 0;
      to[d] = half[d] || !cut ? counts_[d] : edge;
      ranges[d] = range_of(d, from[d], to[d]);
      elements *= to[d] - from[d];
    }
    read_part(ranges, whole ? nbytes_ : elements * st_dtype_bits(tensor_.dtype) / 8, buffer);
    if (dtype_ != tensor_.dtype) buffer = cast(tensor_.dtype, buffer, dtype_);
    for (uint64_t i = 0; i < elements; ++i) {
      uint64_t cell = 0, rest = i, stride = 1;
      bool shown = true;
      for (size_t d = rank; d-- > 0;) {
        const uint64_t n = to[d] - from[d];
        const uint64_t at = from[d] + rest % n;
        rest /= n;
        const bool in_tail = counts_[d] > 2 * edge && at >= counts_[d] - edge;
        shown = shown && (counts_[d] <= 2 * edge || at < edge || in_tail);
        cell += (in_tail ? at - (counts_[d] - 2 * edge) : at) * stride;
        stride *= kept[d];
      }
      if (shown) corner.cells[cell] = element_text(dtype_, buffer, i);
    }
    size_t d = rank;  // the next corner
    for (; d > 0; --d) {
      if (!whole && counts_[d - 1] > 2 * edge && half[d - 1] == 0) {
        half[d - 1] = 1;
        break;
      }
      half[d - 1] = 0;
    }
    if (d == 0) return corner;
  }
}

}  // namespace stctl
