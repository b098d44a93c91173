// Memory that is filled for the first time: on huge pages for as long as the system has them at hand.
//
// A huge page is zeroed in a quarter of the time that its 512 small ones take. But the system may first have to move
// other memory out of its way. A virtual machine may give its free memory back to its host, large pieces first, and
// then waits for each that is used again: ten times as long. So each huge page is asked for before it is filled. Once
// one took longer than small pages would, the memory that is filled later lies on small ones.
#pragma once

#include <atomic>
#include <cstddef>

#include "os/env.h"
#include "read/requests.h"

namespace st::read {

class FreshMemory {
 public:
  explicit FreshMemory(os::Env &env) : env_(env) {}
  // [to, to + n) is filled next, and nobody has touched it yet. If somebody has, its bytes stay. Any thread.
  void expect(std::byte *to, size_t n);
  // The same of what a request fills, as far as it is fresh.
  void expect(const Plan &plan, const Request &request);

 private:
  // Whether it came as fast as it should. Its pages are there then, or the system cannot be asked for them.
  bool take_huge_page(std::byte *at);

  os::Env &env_;
  std::atomic<bool> small_ = false;
};

}  // namespace st::read
