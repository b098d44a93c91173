// Bytes of a file that is no safetensors file to libst: mapped where that is possible,
// else read into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stctl {

class Input {
 public:
  // How many bytes the input may have, as far as its first ones tell. One more is read, which shows that it is too
  // long.
  using Most = std::function<uint64_t(std::string_view first)>;
  // "-" is standard input. Into memory, if stctl itself looks at each element: that takes long, and it would die of a
  // mapping whose file is cut meanwhile. Throws Failure.
  static Input read(const std::string &path, const Most &most, bool into_memory);
  // Nothing if the file can't be mapped. Never throws.
  static std::optional<Input> map(const std::string &path);

  ~Input();
  Input(Input &&other) noexcept;
  Input &operator=(Input &&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  Input() = default;
  static std::optional<Input> map(int fd);
  std::string memory_;
  void *mapping_ = nullptr;
  const char *data_ = "";
  size_t size_ = 0;
};

}  // namespace stctl
