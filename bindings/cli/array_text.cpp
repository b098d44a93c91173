#include "array_text.h"

#include <algorithm>

#include "number.h"
#include "text.h"

namespace stctl {
namespace {

constexpr size_t line_columns = 80;  // a row that was cut is short enough to stay whole
constexpr const char *left_out = "…";

class ArrayWriter {
 public:
  ArrayWriter(Output &out, const Slice::Corner &array) : out_(out), array_(array) {
    for (const std::string &cell : array.cells) widest_ = std::max(widest_, cell.size());
  }

  // Row after row, as an odometer counts: there may be a million dimensions.
  void write() {
    if (array_.shape.empty()) return out_.write(array_.cells[0]);
    const size_t last = array_.shape.size() - 1;
    std::vector<uint64_t> at(last);  // in each dimension but that of the row
    size_t cell = 0;
    out_.write(std::string(last, '['));
    for (;;) {
      write_row(cell);
      size_t d = last;
      for (; d > 0 && ++at[d - 1] == array_.shape[d - 1]; --d) at[d - 1] = 0;
      out_.write(std::string(last - d, ']'));
      if (d-- == 0) return;
      const std::string next = std::string(last - d, '\n') + std::string(d + 1, ' ');
      out_.write(next);
      if (array_.cut[d] && at[d] == array_.shape[d] / 2) out_.write(left_out + next);
      out_.write(std::string(last - d - 1, '['));
    }
  }

 private:
  void write_row(size_t &cell) {
    const size_t d = array_.shape.size() - 1;
    const uint64_t n = array_.shape[d];
    const std::string next_line = fmt::format("\n{:{}}", "", d + 1);
    size_t column = d + 1;
    out_.write("[");
    const auto word = [&](const std::string &text, size_t columns) {
      if (column > d + 1) {
        const bool wrap = !array_.cut[d] && column + 1 + columns > line_columns;
        out_.write(wrap ? next_line : " ");
        column = wrap ? d + 1 : column + 1;
      }
      out_.write(text);
      column += columns;
    };
    for (uint64_t i = 0; i < n; ++i) {
      if (array_.cut[d] && i == n / 2) word(left_out, 1);
      const std::string &text = array_.cells[cell++];
      word(std::string(widest_ - text.size(), ' ') + text, widest_);
    }
    out_.write("]");
  }

  Output &out_;
  const Slice::Corner &array_;
  size_t widest_ = 0;
};

}  // namespace

void write_array(Output &out, const Slice::Corner &array) {
  if (array.cells.empty()) {
    out.write("[]");
  } else {
    ArrayWriter(out, array).write();
  }
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
