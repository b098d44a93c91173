// Random bytes for names and numbers that nobody else chooses.
#pragma once

#include <array>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "os/env.h"

namespace st::os {

namespace detail {

inline bool from_device(Env &env, void *out, size_t n) {
  const int fd = env.openat(AT_FDCWD, "/dev/urandom", O_RDONLY, 0);
  if (fd < 0) return false;
  const bool whole = env.pread(fd, out, n, 0) == static_cast<ssize_t>(n);
  env.close(fd);
  return whole;
}

}  // namespace detail

// Linux before 3.17 has no getrandom, and a sandbox may forbid it: then the device. Where that is missing too, a hash
// of what differs between machines, threads and moments: no two calls of a thread are in one millisecond.
inline uint64_t random_number(Env &env) {
  uint64_t number = 0;
  if (env.random(&number, sizeof number) == sizeof number || detail::from_device(env, &number, sizeof number))
    return number;
  env.sleep_us(1000);
  const std::array<uint64_t, 4> seen = {static_cast<uint64_t>(env.getpid()), env.unix_time(), env.monotonic_ms(),
                                        reinterpret_cast<uintptr_t>(&number)};
  return hash64(seen.data(), sizeof seen);
}

// The seed of a table that is looked up by hash: the author of the names must not know which ones collide.
inline uint64_t hash_seed(Env &env) {
  return random_number(env);
}

// Sixteen hexadecimal digits: names of files that live for a while beside a data file.
inline std::string random_name(Env &env) {
  constexpr char hex[] = "0123456789abcdef";
  unsigned char bytes[8] = {};
  const uint64_t number = random_number(env);
  std::memcpy(bytes, &number, sizeof bytes);
  std::string name;
  for (unsigned char b : bytes) {
    name += hex[b >> 4];
    name += hex[b & 15];
  }
  return name;
}

}  // namespace st::os
