// Bytes of a file that is no safetensors file to libst: mapped where that is possible,
// else read into memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stctl {

class Input {
 public:
  // "-" is standard input. Throws Failure.
  static Input read(const std::string &path);
  // Nothing if the file can't be mapped. Never throws.
  static std::optional<Input> map(const std::string &path);

  ~Input();
  Input(Input &&other) noexcept;
  Input &operator=(Input &&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  Input() = default;
  std::string memory_;
  void *mapping_ = nullptr;
  const char *data_ = "";
  size_t size_ = 0;
};

}  // namespace stctl
