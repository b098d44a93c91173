// How much at once, how often again, and how long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "remote/stopping.h"
#include "remote/surroundings.h"

namespace st::remote {

struct Limits {
  uint32_t connections = 64;  // at most, of one object or checkpoint
  uint32_t first_connections = 16;
  uint32_t idle = 8;  // that stay between calls: a process has few descriptors
  uint32_t idle_of_process = 32;
  uint64_t piece = 8u << 20;  // bytes a request; where answers are slow to begin, up to:
  uint64_t longest_piece = 16u << 20;
  uint64_t first = 256u << 10;   // of the first request, which brings the header
  uint32_t hedges = 4;           // second requests for what is late, at once
  uint32_t tokens = 100;         // requests that may be asked again, until others bring something
  uint32_t tries = 8;            // of a piece that brings nothing
  uint64_t first_wait_ms = 100;  // before the second try; then up to twice that
  uint64_t longest_wait_ms = 8000;
  uint64_t deadline_ms = 120000;  // of a call to which nothing comes
  uint64_t connect_ms = 10000;
  uint64_t stall_ms = 20000;  // of a request to which nothing comes
  uint64_t drip = 1024;       // bytes that one brings at least in three times as long: 64 share a line of a modem

  static Limits of(const Surroundings &from) {
    Limits out;
    out.connections = static_cast<uint32_t>(std::min<uint64_t>(from.number("ST_REMOTE_CONNECTIONS", 64), 64));
    out.stall_ms = from.number("ST_REMOTE_STALL_SECONDS", 20) * 1000;
    out.deadline_ms = from.number("ST_REMOTE_DEADLINE_SECONDS", 120) * 1000;
    return out;
  }
};

}  // namespace st::remote
