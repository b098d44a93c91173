#include "model/copy_out.h"

namespace st::store {

Result<void> copy_out(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                      write::SaveOptions options, const std::function<Result<void>(uint64_t more)> &tell,
                      const GiveBytes &give, const std::function<void()> &all_read) {
  std::vector<write::NewTensor> declared;
  declared.reserve(places.size());
  for (const Place &p : places) declared.push_back(write::declaration(p.tensor()));
  options.progress = [&tell](uint64_t, uint64_t) { return tell(0).has_value(); };
  ST_TRY(auto writer, write::Writer::open(std::move(to), std::move(declared), metadata, std::move(options)));
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &p = places[i];
    const TensorView t = p.tensor();
    if (give) {
      ST_TRY(auto given, give(*writer, i));
      if (given) continue;
    }
    ST_TRY(auto here, p.snapshot->here());
    ST_TRY(writer->copy(t.name, here.file, p.snapshot->file_offset(t), tell));
  }
  if (all_read) all_read();
  return writer->finish();
}

}  // namespace st::store
