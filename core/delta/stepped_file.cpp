#include "delta/stepped_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "newfile/data_offset.h"
#include "newfile/layout.h"

namespace st::store {

SteppedFile::MadeOf SteppedFile::made_of(const SteppedTensor &t) {
  MadeOf all{{t.file, t.tensor.begin}};
  for (const StepsAt &at : t.steps) all.emplace_back(at.delta->snapshot.get(), at.delta->index().at(at.index).begin);
  return all;
}

bool SteppedFile::is_of(const ModelView &base, std::span<const DeltaFile> deltas, const TensorList &listing) const {
  std::vector<MadeOf> now;
  for (const ListedTensor &t : listing.tensors)
    if (!t.steps.empty()) now.push_back(made_of(stepped_tensor(base, deltas, t)));
  return now == made_of_;
}

Result<void> SteppedFile::check(const ModelView &base, std::span<const DeltaFile> deltas, const TensorList &listing,
                                const MayHaveChanged &may_have_changed, const Tell &tell) {
  StepRoom room;
  for (const ListedTensor &listed : listing.tensors) {
    if (listed.steps.empty()) continue;
    const SteppedTensor t = stepped_tensor(base, deltas, listed);
    const bool steps_may =
        std::ranges::any_of(t.steps, [&](const StepsAt &at) { return may_have_changed(*at.delta->snapshot); });
    if (steps_may || may_have_changed(*t.file))
      ST_TRY(step_to_the_end(t, room, [&](const SteppedBlock &block) { return tell(block.bytes.size()); }));
    else
      ST_TRY(tell(listed.nbytes));
  }
  return {};
}

void SteppedFile::put_into(TensorList *listing, uint32_t layer) const {
  for (ListedTensor &t : listing->tensors) {
    if (t.steps.empty()) continue;
    t.layer = layer;
    t.index = index().find(t.name).value();
    t.steps.clear();
  }
}

Result<std::unique_ptr<SteppedFile>> SteppedFile::make(os::Env &env, const ModelView &base,
                                                       std::span<const DeltaFile> deltas, uint32_t layer,
                                                       TensorList *listing, read::MapMode map, const Tell &tell) {
  std::vector<const ListedTensor *> stepped;
  for (const ListedTensor &t : listing->tensors)
    if (!t.steps.empty()) stepped.push_back(&t);
  if (stepped.empty()) return nullptr;
  auto made = std::make_unique<SteppedFile>();
  for (const ListedTensor *t : stepped) made->made_of_.push_back(made_of(stepped_tensor(base, deltas, *t)));
  write::align(&stepped, [](const ListedTensor *t) -> const ListedTensor & { return *t; });
  std::vector<HeaderTensor> entries;
  uint64_t end = 0;
  for (const ListedTensor *t : stepped) {
    entries.push_back({t->name, t->dtype, t->shape, end, t->nbytes});
    end += t->nbytes;
  }
  ST_TRY(auto header, serialize_header(entries, {}));
  const uint64_t data = write::data_offset_behind(header.size(), 0);
  ST_TRY(pad_header(&header, data));

  if (data + end > PTRDIFF_MAX) throw std::bad_alloc();
  made->bytes_ = std::make_unique_for_overwrite<std::byte[]>(data + end);
  std::memcpy(made->bytes_.get(), header.data(), data);
  StepRoom room;
  for (size_t i = 0; i < stepped.size(); ++i) {
    std::byte *to = made->bytes_.get() + data + entries[i].begin;
    const auto copy = [&, to](const SteppedBlock &block) {
      std::memcpy(to + block.begin, block.bytes.data(), block.bytes.size());
      return tell(block.bytes.size());
    };
    ST_TRY(step_to_the_end(stepped_tensor(base, deltas, *stepped[i]), room, copy));
  }
  ST_TRY(made->file_, DataFile::open_memory(env, made->bytes_.get(), data + end, map));
  made->held_ = made->file_->hold();
  made->last_layers_.resize(stepped.size());
  for (const ListedTensor *t : stepped) made->last_layers_[made->index().find(t->name).value()] = t->steps.back().first;
  made->put_into(listing, layer);
  return made;
}

}  // namespace st::store
