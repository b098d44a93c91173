#include "delta/stepped_file.h"

#include <cstdint>
#include <cstring>
#include <new>

#include "newfile/data_offset.h"

namespace st::store {

Result<std::unique_ptr<SteppedFile>> SteppedFile::make(os::Env &env, const ModelView &base,
                                                       std::span<const DeltaFile> deltas, uint32_t layer,
                                                       TensorList *listing) {
  std::vector<ListedTensor *> stepped;
  std::vector<HeaderTensor> entries;
  uint64_t end = 0;
  for (ListedTensor &t : listing->tensors) {
    if (t.steps.empty()) continue;
    stepped.push_back(&t);
    entries.push_back({t.name, t.dtype, t.shape, end, t.nbytes});
    end += t.nbytes;
  }
  if (stepped.empty()) return nullptr;
  ST_TRY(auto header, serialize_header(entries, {}));
  const uint64_t data = write::data_offset_behind(header.size(), 0);
  ST_TRY(pad_header(&header, data));

  auto made = std::make_unique<SteppedFile>();
  if (data + end > PTRDIFF_MAX) throw std::bad_alloc();
  made->bytes_ = std::make_unique_for_overwrite<std::byte[]>(data + end);
  std::memcpy(made->bytes_.get(), header.data(), data);
  StepRoom room;
  for (size_t i = 0; i < stepped.size(); ++i) {
    std::byte *to = made->bytes_.get() + data + entries[i].begin;
    const auto copy = [to](const SteppedBlock &block) -> Result<void> {
      std::memcpy(to + block.begin, block.bytes.data(), block.bytes.size());
      return {};
    };
    ST_TRY(step_to_the_end(stepped_tensor(base, deltas, *stepped[i]), room, copy));
  }
  ST_TRY(made->file_, DataFile::open_memory(env, made->bytes_.get(), data + end));
  made->held_ = made->file_->hold();
  made->last_layers_.resize(stepped.size());
  for (ListedTensor *t : stepped) {
    t->layer = layer;
    t->index = made->index().find(t->name).value();
    made->last_layers_[t->index] = t->steps.back().first;
    t->steps.clear();
  }
  return made;
}

}  // namespace st::store
