#include "file/slice_map.h"

#include <algorithm>
#include <iterator>

namespace st::store {

void SliceMap::put(Strip strip) {
  if (strip.length == 0) return;
  const bool behind_all = strips_.empty() || strips_.rbegin()->first < strip.begin;
  auto at = behind_all ? strips_.end() : strips_.lower_bound(strip.begin);
  if (at != strips_.begin()) {
    Strip &before = std::prev(at)->second;
    if (before.end() > strip.end())  // the new one lies inside it
      at = strips_.insert(
          at, {strip.end(),
               {strip.end(), before.end() - strip.end(), before.payload, before.skip + (strip.end() - before.begin)}});
    if (before.end() > strip.begin) before.length = strip.begin - before.begin;
  }
  while (at != strips_.end() && at->first < strip.end()) {
    Strip rest = at->second;
    at = strips_.erase(at);
    if (rest.end() <= strip.end()) continue;
    const uint64_t hidden = strip.end() - rest.begin;
    at = strips_.insert(at, {strip.end(), {strip.end(), rest.length - hidden, rest.payload, rest.skip + hidden}});
  }
  if (at != strips_.begin()) {
    Strip &before = std::prev(at)->second;
    const bool goes_on = before.end() == strip.begin && before.payload == strip.payload;
    if (goes_on && before.skip + before.length == strip.skip) {
      before.length += strip.length;
      return;
    }
  }
  strips_.insert(at, {strip.begin, strip});
}

uint64_t SliceMap::bytes() const {
  uint64_t sum = 0;
  for (const auto &[begin, strip] : strips_) sum += strip.length;
  return sum;
}

uint64_t SliceMap::bytes_gathered() const {
  uint64_t sum = 0;
  for (auto at = strips_.begin(); at != strips_.end();) {
    const Stretch stretch = stretch_from(at);
    sum += stretch.end - stretch.begin;
    at = stretch.behind;
  }
  return sum;
}

SliceMap::Stretch SliceMap::stretch_from(std::map<uint64_t, Strip>::const_iterator at) const {
  Stretch s{at->first, at->second.end(), at, std::next(at)};
  if (at->second.length >= long_strip) return s;
  for (; s.behind != strips_.end(); ++s.behind) {
    const Strip &next = s.behind->second;
    const bool joins =
        next.length < long_strip && next.begin - s.end < short_gap && next.end() - s.begin <= longest_gathered;
    if (!joins) break;
    s.end = next.end();
  }
  return s;
}

namespace {

// The gaps that must go for so many ranges to stay: the shorter ones, and some of that length.
struct Nearest {
  uint64_t longest = 0;
  ptrdiff_t longest_ones = 0;
};

Nearest nearest(const std::vector<Covered> &ranges, size_t most) {
  if (ranges.size() <= most) return {};
  std::vector<uint64_t> gaps;
  gaps.reserve(ranges.size() - 1);
  for (size_t i = 1; i < ranges.size(); ++i) gaps.push_back(ranges[i].begin - ranges[i - 1].end);
  const auto last = gaps.begin() + static_cast<ptrdiff_t>(ranges.size() - most - 1);
  std::nth_element(gaps.begin(), last, gaps.end());
  return {*last, std::count(gaps.begin(), std::next(last), *last)};
}

}  // namespace

std::vector<Covered> cover(const std::vector<Covered> &ranges, uint64_t gap, size_t most) {
  Nearest go = nearest(ranges, most);
  const auto joins = [&](uint64_t between) {
    if (between < std::max(gap, go.longest)) return true;
    return between == go.longest && go.longest_ones-- > 0;
  };
  std::vector<Covered> out;
  for (const Covered &r : ranges) {
    if (!out.empty() && joins(r.begin - out.back().end))
      out.back().end = r.end;
    else
      out.push_back(r);
  }
  return out;
}

}  // namespace st::store
