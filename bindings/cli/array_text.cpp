#include "array_text.h"

#include <algorithm>

#include "code.h"
#include "number.h"
#include "text.h"

namespace stctl {
namespace {

constexpr size_t line_columns = 80;  // a row that was cut is short enough to stay whole
constexpr const char *left_out = "…";

// Takes the elements one after the other, in C order.
class ArrayWriter {
 public:
  // `cut` says of which dimensions the middle is left out. `widest`: of all elements, in columns.
  ArrayWriter(Output &out, std::vector<uint64_t> shape, std::vector<bool> cut, size_t widest)
      : out_(out), shape_(std::move(shape)), cut_(std::move(cut)), widest_(widest), at_(shape_.size()) {
    if (!shape_.empty()) out_.write(std::string(shape_.size() - 1, '['));
  }

  // As an odometer counts: there may be a million dimensions.
  void add(const std::string &text) {
    if (shape_.empty()) return out_.write(text);
    const size_t last = shape_.size() - 1;
    if (at_[last] == 0) begin_row();
    if (cut_[last] && at_[last] == shape_[last] / 2) word(left_out, 1);
    word(std::string(widest_ - std::min(widest_, text.size()), ' ') + text, widest_);
    if (++at_[last] < shape_[last]) return;
    at_[last] = 0;
    size_t d = last;
    for (; d > 0 && ++at_[d - 1] == shape_[d - 1]; --d) at_[d - 1] = 0;
    out_.write(std::string(last - d + 1, ']'));
    if (d-- == 0) return;
    const std::string next = std::string(last - d, '\n') + std::string(d + 1, ' ');
    out_.write(next);
    if (cut_[d] && at_[d] == shape_[d] / 2) out_.write(left_out + next);
    out_.write(std::string(last - d - 1, '['));
  }

 private:
  void begin_row() {
    out_.write("[");
    column_ = shape_.size();
  }

  void word(const std::string &text, size_t columns) {
    const size_t first = shape_.size();  // column of a row's words: behind its brackets
    if (column_ > first) {
      const bool wrap = !cut_.back() && column_ + 1 + columns > line_columns;
      out_.write(wrap ? "\n" + std::string(first, ' ') : " ");
      column_ = wrap ? first : column_ + 1;
    }
    out_.write(text);
    column_ += columns;
  }

  Output &out_;
  const std::vector<uint64_t> shape_;
  const std::vector<bool> cut_;
  const size_t widest_;
  std::vector<uint64_t> at_;  // in each dimension
  size_t column_ = 0;
};

// Elements of few bits repeat: of each only one is looked at.
size_t widest_of(st_dtype dtype, std::string_view bytes, uint64_t elements) {
  std::vector<bool> seen(st_dtype_bits(dtype) <= 16 ? size_t{1} << st_dtype_bits(dtype) : 0);
  size_t widest = 0;
  for (uint64_t i = 0; i < elements; ++i) {
    if (!seen.empty()) {
      const uint64_t code = load_code(dtype, bytes, i);
      if (seen[code]) continue;
      seen[code] = true;
    }
    widest = std::max(widest, element_text(dtype, bytes, i).size());
  }
  return widest;
}

}  // namespace

void write_array(Output &out, const Slice &slice) {
  bool any = false;
  slice.read(UINT64_MAX, [&](std::string_view bytes) {  // once, in one piece
    any = true;
    const std::vector<uint64_t> shape = slice.shape();
    ArrayWriter array(out, shape, std::vector<bool>(shape.size()), widest_of(slice.dtype(), bytes, slice.elements()));
    for (uint64_t i = 0; i < slice.elements(); ++i) array.add(element_text(slice.dtype(), bytes, i));
  });
  out.write(any ? "\n" : "[]\n");
}

void write_array(Output &out, const Slice::Corner &corner) {
  if (corner.cells.empty()) return out.write("[]\n");
  size_t widest = 0;
  for (const std::string &cell : corner.cells) widest = std::max(widest, cell.size());
  ArrayWriter array(out, corner.shape, corner.cut, widest);
  for (const std::string &cell : corner.cells) array.add(cell);
  out.write("\n");
}

void write_array(Json &json, const Slice &slice, uint64_t piece, const std::function<void(uint64_t)> &progress) {
  const std::vector<uint64_t> shape = slice.shape();
  if (slice.elements() == 0) {
    json.begin_array();
    json.end_array();
    return;
  }
  // sizes[d]: elements in one entry of dimension d - 1. At a multiple of it a bracket of dimension d opens or closes.
  std::vector<uint64_t> sizes(shape.size());
  uint64_t size = 1;
  for (size_t d = shape.size(); d-- > 0;) sizes[d] = size *= shape[d];
  uint64_t element = 0, done = 0;
  slice.read(piece, [&](std::string_view bytes) {
    const uint64_t n = elements_of(slice.dtype(), bytes.size());
    for (uint64_t i = 0; i < n; ++i, ++element) {
      for (uint64_t s : sizes) {
        if (element % s == 0) json.begin_array();
      }
      json.raw(element_json(slice.dtype(), bytes, i));
      for (uint64_t s : sizes) {
        if ((element + 1) % s == 0) json.end_array();
      }
    }
    progress(done += bytes.size());
  });
}

}  // namespace stctl
