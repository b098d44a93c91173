// A table for people: columns as wide as their widest cell, but for very wide ones, two spaces between,
// nothing after the last.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "output.h"
#include "text.h"

namespace stctl {

class Table {
 public:
  enum Align { left, right };
  using Column = std::pair<std::string, Align>;

  // An empty heading everywhere means no heading row.
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {
    for (const Column &column : columns_) widths_.push_back(width(column.first));
  }

  // One cell a column; cells are escaped already.
  void add(std::vector<std::string> cells) {
    for (size_t i = 0; i < cells.size(); ++i)
      widths_[i] = std::max(widths_[i], std::min(width(cells[i]), most_columns));
    rows_.push_back(std::move(cells));
  }

  void write(Output &out) const {
    std::vector<std::string> headings;
    bool any = false;
    for (const Column &column : columns_) {
      headings.push_back(column.first);
      any = any || !column.first.empty();
    }
    if (any) write_row(out, headings);
    for (const std::vector<std::string> &row : rows_) write_row(out, row);
  }

 private:
  static constexpr size_t most_columns = 256;  // a wider cell moves its own row alone

  void write_row(Output &out, const std::vector<std::string> &cells) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      const size_t padding = widths_[i] - std::min(widths_[i], width(cells[i]));
      if (columns_[i].second == right) line.append(padding, ' ');
      line += cells[i];
      if (columns_[i].second == left) line.append(padding, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out.write(line + "\n");
  }

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stctl
