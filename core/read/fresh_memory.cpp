#include "read/fresh_memory.h"

#include <cstdint>

#include "base/huge_memory.h"
#include "base/round.h"

namespace st::read {
namespace {

constexpr uint64_t too_long = 1'000'000;  // nanoseconds: 512 small pages take from 0.4 to 1.6 ms, a huge one 0.1 to 0.3
constexpr size_t small_page = 4096;       // of most systems; advice about half a page of another is refused

}  // namespace

bool FreshMemory::take_huge_page(std::byte *at) {
  const uint64_t before = env_.thread_ns();
  env_.madvise(at, huge_page, MADV_POPULATE_WRITE);  // a hint: where it fails the pages come when they are filled
  return env_.thread_ns() - before < too_long;
}

void FreshMemory::expect(std::byte *to, size_t n) {
  if (n < huge_page) return;
  const auto begin = reinterpret_cast<uintptr_t>(to), end = begin + n;
  uintptr_t at = round_up(begin, huge_page);
  while (!small_.load(std::memory_order_relaxed) && at + huge_page <= end) {
    if (!take_huge_page(to + (at - begin))) small_.store(true, std::memory_order_relaxed);
    at += huge_page;
  }
  if (!small_.load(std::memory_order_relaxed)) return;
  const uintptr_t rest = at > round_up(begin, huge_page) ? at : round_up(begin, small_page),
                  until = round_down(end, small_page);
  if (rest >= until) return;
  env_.madvise(to + (rest - begin), until - rest, MADV_NOHUGEPAGE);
  // All at once they cost two thirds of what each costs as it is filled.
  env_.madvise(to + (rest - begin), until - rest, MADV_POPULATE_WRITE);
}

void FreshMemory::expect(const Plan &plan, const Request &request) {
  for (const Piece &piece : std::span(plan.pieces).subspan(request.first, request.count))
    if (piece.fresh) expect(piece.to, piece.length);
}

}  // namespace st::read
