#include "store/copy_out.h"

namespace st::store {

Result<void> copy_out(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                      write::SaveOptions options, const std::function<Result<void>(uint64_t more)> &tell) {
  std::vector<write::NewTensor> declared;
  declared.reserve(places.size());
  for (const Place &p : places) declared.push_back(write::declaration(p.tensor()));
  options.progress = [&tell](uint64_t, uint64_t) { return tell(0).has_value(); };
  auto writer = write::Writer::open(std::move(to), std::move(declared), metadata, std::move(options));
  if (!writer) return Failure(std::move(writer.error()));
  for (const Place &p : places) {
    const TensorView t = p.tensor();
    auto here = p.snapshot->here();
    if (!here) return Failure(std::move(here.error()));
    if (auto done = (*writer)->copy(t.name, here->file, p.snapshot->file_offset(t), tell); !done) return done;
  }
  return (*writer)->finish();
}

}  // namespace st::store
