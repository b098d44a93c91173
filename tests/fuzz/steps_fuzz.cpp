// Steps of elements: what is written is read again, forth and back; and steps that were damaged, or never written by
// us, are bytes of the block or an error.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "delta/steps.h"
#include "require.h"

namespace st::fuzz {
namespace {

using store::step_block_bytes;
using store::StepReader;

std::span<const std::byte> bytes_in(const std::string &s) {
  return std::as_bytes(std::span(s));
}

// Steps of block 0 alone. Memory ends where the block does, so that ASan sees what leads out of it.
Result<std::string> stepped(Dtype dtype, const std::string &bytes, const std::string &steps) {
  uint64_t next = 0;
  const auto read = [&](void *to, uint64_t n) -> Result<void> {
    REQUIRE(n <= steps.size() - next, "reads ", n, " bytes of ", steps.size() - next);
    std::memcpy(to, steps.data() + next, n);
    next += n;
    return {};
  };
  ST_TRY(auto reader, StepReader::begin(dtype, bytes.size(), steps.size(), read));
  const std::unique_ptr<char[]> block(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), block.get());
  store::StepRoom room;
  if (reader.has(0)) ST_TRY(reader.take(std::as_writable_bytes(std::span(block.get(), bytes.size())), room));
  return std::string(block.get(), bytes.size());
}

void run(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  const Dtype dtype = in.PickValueInArray({Dtype::F4, Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::F64});
  const uint64_t width = store::step_width(dtype), elements = in.ConsumeIntegralInRange<uint64_t>(1, 70000) / width + 1;
  const std::string old(elements * width, in.ConsumeIntegral<char>());
  std::string fresh = old;
  for (uint64_t left = in.ConsumeIntegralInRange(0, 40); left > 0; --left)
    fresh[in.ConsumeIntegralInRange<uint64_t>(0, fresh.size() - 1)] = in.ConsumeIntegral<char>();
  store::StepWriter writer;
  const auto made = writer.steps_of(dtype, 0, bytes_in(old), bytes_in(fresh));
  std::string steps(reinterpret_cast<const char *>(made.data()), made.size());
  const auto forth = stepped(dtype, old, steps), back = stepped(dtype, fresh, steps);
  REQUIRE(forth && *forth == fresh, said(forth));
  REQUIRE(back && *back == old, said(back));

  for (uint64_t left = in.ConsumeIntegralInRange(0, 8); left > 0 && !steps.empty(); --left)
    steps[in.ConsumeIntegralInRange<uint64_t>(0, steps.size() - 1)] = in.ConsumeIntegral<char>();
  steps.resize(std::min<size_t>(steps.size(), in.ConsumeIntegralInRange<size_t>(0, 1 << 16)));
  const std::string others[] = {steps, steps + in.ConsumeRemainingBytesAsString()};
  for (const std::string &other : others) {
    const auto read = stepped(dtype, old, other);
    REQUIRE(read || read.error().status == Status::delta, said(read));
  }
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  st::fuzz::run(data, size);
  return 0;
}
