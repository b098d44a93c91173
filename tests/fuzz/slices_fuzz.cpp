// Slices of tensors of any shape and dtype, by any ranges: the same shape, size
// and bytes as taking element after element, bit by bit; and refused exactly
// where a run of elements begins or ends inside a byte.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "file/data_file.h"
#include "format/header.h"
#include "format/slice.h"
#include "require.h"
#include "serialise_header.h"
#include "sim_env.h"

namespace st::fuzz {
namespace {

const std::string path = "/m.safetensors";

// The indices that Python's range(*slice(start, stop, step).indices(n)) gives; numbers too wide to overflow.
std::vector<uint64_t> indices(const Range &range, uint64_t n) {
  using Wide = __int128;
  const Wide length = static_cast<Wide>(n), step = range.step;
  const Wide lowest = step < 0 ? -1 : 0, highest = step < 0 ? length - 1 : length;
  auto bound = [&](Wide i) { return std::clamp(i < 0 ? i + length : i, lowest, highest); };
  std::vector<uint64_t> out;
  const Wide stop = bound(range.stop);
  for (Wide i = bound(range.start); step > 0 ? i < stop : i > stop; i += step) out.push_back(static_cast<uint64_t>(i));
  return out;
}

struct Slice {
  std::vector<uint64_t> shape;
  std::vector<uint64_t> elements;  // in the order of the result
};

Slice take(const std::vector<uint64_t> &shape, const std::vector<Range> &ranges) {
  Slice slice;
  slice.elements = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto picked = indices(d < ranges.size() ? ranges[d] : Range{0, INT64_MAX, 1}, shape[d]);
    slice.shape.push_back(picked.size());
    std::vector<uint64_t> next;
    for (uint64_t outer : slice.elements)
      for (uint64_t i : picked) next.push_back(outer * shape[d] + i);
    slice.elements = std::move(next);
  }
  return slice;
}

// Every run of neighbours begins and ends at a byte, there and here.
bool keeps_bytes_whole(const std::vector<uint64_t> &elements, uint64_t bits) {
  for (size_t i = 0; i < elements.size(); ++i) {
    const bool begins = i == 0 || elements[i] != elements[i - 1] + 1;
    if (begins && (elements[i] * bits % 8 != 0 || i * bits % 8 != 0)) return false;
  }
  return elements.size() * bits % 8 == 0 && (elements.empty() || (elements.back() + 1) * bits % 8 == 0);
}

std::string gather(const std::string &bytes, const std::vector<uint64_t> &elements, uint64_t bits) {
  if (bits % 8 == 0) {
    std::string out;
    for (uint64_t e : elements) out.append(bytes, e * bits / 8, bits / 8);
    return out;
  }
  std::string out(elements.size() * bits / 8, '\0');
  for (size_t i = 0; i < elements.size(); ++i)
    for (uint64_t b = 0; b < bits; ++b) {
      const uint64_t from = elements[i] * bits + b, to = i * bits + b;
      if (bytes[from / 8] >> (from % 8) & 1) out[to / 8] = static_cast<char>(out[to / 8] | 1 << (to % 8));
    }
  return out;
}

int64_t bound(FuzzedDataProvider &in, uint64_t dim) {
  const int64_t limits[] = {0, -1, static_cast<int64_t>(dim), -static_cast<int64_t>(dim), INT64_MAX, INT64_MIN};
  if (in.ConsumeBool()) return in.ConsumeIntegralInRange<int64_t>(-12, 12);
  const int64_t near = in.PickValueInArray(limits);
  const int64_t by = in.ConsumeIntegralInRange(-2, 2);
  int64_t sum;
  return __builtin_add_overflow(near, by, &sum) ? near : sum;
}

int64_t step(FuzzedDataProvider &in) {
  const int64_t limits[] = {1, -1, 2, INT64_MAX, INT64_MIN, INT64_MIN + 1, 0};
  return in.ConsumeBool() ? in.ConsumeIntegralInRange<int64_t>(-6, 6) : in.PickValueInArray(limits);
}

std::string spelled(Dtype dtype, const std::vector<uint64_t> &shape, const std::vector<Range> &ranges) {
  std::string s = text(dtype_name(dtype), " [");
  for (uint64_t dim : shape) s += text(" ", dim);
  s += " ]";
  for (const Range &r : ranges) s += text(" ", r.start, ":", r.stop, ":", r.step);
  return s;
}

void run(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  const auto dtype = static_cast<Dtype>(in.ConsumeIntegralInRange<uint32_t>(1, dtype_count));
  const uint64_t bits = dtype_bits(dtype);
  std::vector<uint64_t> shape;
  uint64_t count = 1;
  for (int rank = in.ConsumeIntegralInRange(0, 6); rank > 0; --rank) {
    const uint64_t dim = in.ConsumeIntegralInRange<uint64_t>(0, 9);
    if (count * dim > 4096) break;
    shape.push_back(dim);
    count *= dim;
  }
  if (in.ConsumeIntegralInRange(0, 3) == 0 && count * 100 <= 65536) {  // long rows, as requests join and skip gaps
    shape.push_back(in.ConsumeIntegralInRange<uint64_t>(1, 100));
    count *= shape.back();
  }
  if (count * bits % 8 != 0) return;  // no tensor

  std::vector<Range> ranges;
  for (size_t n = in.ConsumeIntegralInRange<size_t>(0, shape.size() + 1); n > 0; --n) {
    const uint64_t dim = ranges.size() < shape.size() ? shape[ranges.size()] : 1;
    ranges.push_back({bound(in, dim), bound(in, dim), step(in)});
  }
  const auto plan = SlicePlan::make(dtype, shape, ranges);
  if (ranges.size() > shape.size()) {
    REQUIRE(!plan && plan.error().status == Status::out_of_range, said(plan));
    return;
  }
  if (std::any_of(ranges.begin(), ranges.end(), [](const Range &r) { return r.step == 0; })) {
    REQUIRE(!plan && plan.error().status == Status::invalid_argument, said(plan));
    return;
  }
  const Slice wanted = take(shape, ranges);
  if (!keeps_bytes_whole(wanted.elements, bits)) {
    REQUIRE(!plan && plan.error().status == Status::subbyte, said(plan));
    return;
  }
  REQUIRE(plan, said(plan), " of ", spelled(dtype, shape, ranges));
  REQUIRE(std::ranges::equal(plan->shape(), wanted.shape), "another shape");

  std::string bytes(count * bits / 8, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 151 + i / 251);
  const std::string expected = gather(bytes, wanted.elements, bits);
  REQUIRE(plan->nbytes() == expected.size(), plan->nbytes(), " bytes, not ", expected.size());

  // By the plan alone, in whose runs nothing overlaps and sources ascend.
  std::string packed(expected.size(), '\0');
  uint64_t last = 0, runs = 0;
  for (SlicePlan::Cursor at(*plan); !at.done(); at.next(), ++runs) {
    REQUIRE(runs == 0 || at.source() > last, "run ", runs, " lies before the last");
    last = at.source();
    REQUIRE(at.source() <= bytes.size() && plan->run_bytes() <= bytes.size() - at.source(), "reads outside");
    REQUIRE(at.destination() <= packed.size() && plan->run_bytes() <= packed.size() - at.destination(),
            "writes outside");
    packed.replace(at.destination(), plan->run_bytes(), bytes, at.source(), plan->run_bytes());
  }
  REQUIRE(packed == expected, "the plan gives other bytes");
  REQUIRE(runs == plan->run_count(), runs);

  // From a file, where neighbours are read together; alone and in bulk.
  const std::string neighbour(static_cast<size_t>(in.ConsumeIntegralInRange(0, 70)), '#');
  const uint64_t around = neighbour.size();
  const std::vector<HeaderTensor> tensors = {{"before", Dtype::U8, {&around, 1}, 0, around},
                                             {"t", dtype, shape, around, bytes.size()},
                                             {"behind", Dtype::U8, {&around, 1}, around + bytes.size(), around}};
  testing::SimEnv env;
  env.add_file(path, *testing::serialise_header(tensors, {}) + neighbour + bytes + neighbour);
  auto opened = store::DataFile::open(env, path, {});
  REQUIRE(opened, said(opened));
  const store::Snapshot &snapshot = (*opened)->snapshot();
  const size_t t = snapshot.header.index.find("t").value();
  std::string read(expected.size(), '\0'), read_too = read;
  const auto alone = (*opened)->read_slice(snapshot, t, *plan, read.data());
  REQUIRE(alone && read == expected, said(alone));
  const auto bulk =
      (*opened)->read_many(snapshot, {{t, &*plan, reinterpret_cast<std::byte *>(read_too.data())}}, Progress());
  REQUIRE(bulk && read_too == expected, said(bulk));
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  st::fuzz::run(data, size);
  return 0;
}
