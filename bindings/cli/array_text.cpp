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

  void write(size_t d, size_t &cell) {
    if (d == array_.shape.size()) {
      out_.write(array_.cells[cell++]);
    } else if (d + 1 == array_.shape.size()) {
      write_row(cell);
    } else {
      write_rows(d, cell);
    }
  }

 private:
  void write_rows(size_t d, size_t &cell) {
    const uint64_t n = array_.shape[d];
    const std::string indent(d + 1, ' ');
    const std::string newlines(array_.shape.size() - d - 1, '\n');
    out_.write("[");
    for (uint64_t i = 0; i < n; ++i) {
      if (i > 0) out_.write(newlines + indent);
      if (array_.cut[d] && i == n / 2) out_.write(left_out + newlines + indent);
      write(d + 1, cell);
    }
    out_.write("]");
  }

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
  size_t cell = 0;
  if (array.cells.empty()) {
    out.write("[]");
  } else {
    ArrayWriter(out, array).write(0, cell);
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
    const uint64_t n = elements_of(slice.tensor().dtype, bytes.size());
    for (uint64_t i = 0; i < n; ++i, ++element) {
      for (uint64_t s : sizes) {
        if (element % s == 0) json.begin_array();
      }
      json.raw(element_json(slice.tensor().dtype, bytes, i));
      for (uint64_t s : sizes) {
        if ((element + 1) % s == 0) json.end_array();
      }
    }
    progress(done += bytes.size());
  });
}

}  // namespace stctl
