// Copy-on-write mappings of a file that are made while a patch of it goes on, and what they showed then.
#pragma once

#include <gtest/gtest.h>

#include "fault_env.h"
#include "os/mapping.h"
#include "test_files.h"

namespace st::testing {

class MappedMeanwhile {
 public:
  // Maps by `env`, which is not the one that patches.
  MappedMeanwhile(os::Env &env, std::string path) : env_(env), path_(std::move(path)) {}

  // Before each call by which a commit changes something, or makes it durable.
  void map_at(Call call) {
    if (call == Call::pwrite || call == Call::fsync || call == Call::fdatasync) map_now();
  }
  // Those that show what is not what they showed first.
  long changed() const {
    long n = 0;
    for (size_t i = 0; i < mappings_.size(); ++i) n += bytes_of(mappings_[i]) != first_[i];
    return n;
  }
  size_t count() const { return mappings_.size(); }

 private:
  void map_now() {
    auto file = os::File::open(env_, AT_FDCWD, path_, O_RDONLY, 0, path_);
    ASSERT_TRUE(is_ok(file));
    auto made = os::Mapping::of_file(*file, testing::bytes_of(path_).size(), os::MapKind::copy_on_write);
    ASSERT_TRUE(is_ok(made));
    mappings_.push_back(std::move(*made));
    first_.push_back(bytes_of(mappings_.back()));
  }
  static std::string bytes_of(const os::Mapping &m) { return {reinterpret_cast<const char *>(m.data()), m.size()}; }

  os::Env &env_;
  const std::string path_;
  std::vector<os::Mapping> mappings_;
  std::vector<std::string> first_;
};

}  // namespace st::testing
