// A JSON writer that puts the commas: values are written in order, nothing is
// kept. The caller keeps objects and arrays balanced.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "output.h"

namespace stctl {

class Json {
 public:
  explicit Json(Output &out) : out_(out) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }

  void key(std::string_view name);
  void value(std::string_view text);
  void value(const char *text) { value(std::string_view(text)); }
  void value(uint64_t n) { raw(std::to_string(n)); }
  void value(int64_t n) { raw(std::to_string(n)); }
  void value(bool b) { raw(b ? "true" : "false"); }
  void null() { raw("null"); }
  void raw(std::string_view json);  // a value that is JSON already

  template <class T>
  void field(std::string_view name, const T &v) {
    key(name);
    value(v);
  }
  void names(std::string_view name, const std::vector<std::string> &all) {
    key(name);
    begin_array();
    for (const std::string &each : all) value(each);
    end_array();
  }

 private:
  void open(char bracket);
  void close(char bracket);
  void comma();
  Output &out_;
  bool first_ = true;  // of its object or array: no comma before it
};

}  // namespace stctl
