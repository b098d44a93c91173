#include "delta/delta_file.h"

#include <algorithm>

#include "delta/delta_hash.h"

namespace st::store {

Result<DeltaFile> DeltaFile::of(const DataFile &file) {
  HeldSnapshot snapshot = file.hold();
  auto notes = parse_delta(snapshot->header.index);
  if (!notes) {
    notes.error().message += text(" (", in_quotes(file.place()), ")");
    return Failure(std::move(notes.error()));
  }
  return DeltaFile{nullptr, file.place(), std::move(snapshot), std::move(*notes)};
}

Result<DeltaFile> DeltaFile::of(std::unique_ptr<DataFile> file) {
  auto delta = of(*file);
  if (delta) delta->file = std::move(file);
  return delta;
}

Result<std::vector<DeltaFile::Checked>> DeltaFile::check_bytes(const std::function<Result<void>(uint64_t more)> &tell,
                                                               bool with_all) const {
  std::vector<Checked> checked;
  TensorWindow window(true);
  for (size_t i = 0; i < index().size(); ++i) {
    Hasher all;
    const auto take = [&, is_whole = !notes.tensors[i].steps](std::span<const std::byte> piece) {
      if (with_all && is_whole) all.add(piece.data(), piece.size());
      return tell(piece.size());
    };
    ST_TRY(auto hashed, check_tensor(i, window, take));
    checked.push_back({hashed.head, all.digest()});
  }
  return checked;
}

Result<OldBytes> DeltaFile::check_tensor(size_t i, TensorWindow &window,
                                         const std::function<Result<void>(std::span<const std::byte>)> &take) const {
  const TensorView t = index().at(i);
  ST_TRY(auto hashed, hash_tensor(window, *snapshot, t, take));
  if (hashed.all == notes.tensors[i].steps.value_or(notes.tensors[i].bytes)) return hashed;
  return Failure(error(Status::delta, "the bytes of tensor ", in_quotes(t.name), " in the delta ", in_quotes(path),
                       " are not those that it was written with; make it anew")
                     .about_tensor(t.name));
}

std::vector<OldTensor> old_tensors(const ModelView &base, const Index &delta, const DeltaNotes &notes) {
  std::vector<OldTensor> out;
  for (size_t i = 0; i < delta.size(); ++i)
    if (notes.tensors[i].old)
      out.push_back({base.find(delta.at(i).name).value(), *notes.tensors[i].old, notes.tensors[i].bytes});
  for (const auto &[name, old] : notes.deleted) out.push_back({base.find(name).value(), old});
  std::sort(out.begin(), out.end(), [](const OldTensor &a, const OldTensor &b) { return a.index < b.index; });
  return out;
}

// That the base is wrong is known by then. It may lie behind a URL.
constexpr uint64_t most_read_for_a_reason = uint64_t{1} << 20;

Result<void> check_heads(const ModelView &base, std::span<const OldTensor> tensors) {
  char head[delta_head_bytes];
  for (const OldTensor &old : tensors) {
    const Place &place = base.at(old.index);
    const TensorView t = place.tensor();
    const uint64_t n = std::min(t.nbytes, delta_head_bytes);
    ST_TRY(auto reach, place.snapshot->here());
    ST_TRY(reach.file.read(head, n, place.snapshot->file_offset(t)));
    if (hash64(head, n) == old.bytes.head) continue;
    std::optional<Hash128> found;
    if (t.nbytes <= most_read_for_a_reason) {
      TensorWindow window(false);
      if (auto hashed = hash_tensor(window, *place.snapshot, t, [](auto) { return Result<void>(); }))
        found = hashed->all;
    }
    return Failure(wrong_base(t.name, place.member->place(), found, old.result));
  }
  return {};
}

bool same_form(const ModelView &base, const DeltaFile &delta, size_t i) {
  const TensorView t = delta.index().at(i);
  const auto found = base.find(t.name);
  if (!found) return false;
  const TensorView old = base.at(*found).tensor();
  return delta.notes.tensors[i].steps || (old.dtype == t.dtype && std::ranges::equal(old.shape, t.shape));
}

bool same_forms(const ModelView &base, const DeltaFile &delta) {
  for (size_t i = 0; i < delta.index().size(); ++i)
    if (!same_form(base, delta, i)) return false;
  return true;
}

Error wrong_base(std::string_view tensor, std::string_view path, const std::optional<Hash128> &found,
                 const std::optional<Hash128> &result) {
  const std::string_view other =
      " does not have the bytes that the delta is to replace; the delta was made for another base, or ";
  if (found && found == result)
    return error(Status::delta_base, "tensor ", in_quotes(tensor), " of ", in_quotes(path),
                 " has the bytes that the delta leads to; it has been applied already")
        .about_tensor(tensor);
  return error(Status::delta_base, "tensor ", in_quotes(tensor), " of ", in_quotes(path), other,
               found ? "the base has changed since" : "has been applied already")
      .about_tensor(tensor);
}

Error wrong_steps(std::string_view tensor, std::string_view path) {
  return error(Status::delta, "the steps of tensor ", in_quotes(tensor), " in the delta ", in_quotes(path),
               " do not lead to the bytes that it names; make it anew")
      .about_tensor(tensor);
}

Result<std::unique_ptr<write::Writer>> write_delta(os::Env &env, const std::string &path,
                                                   std::vector<HeldTensor> tensors, const Describe &describe,
                                                   uint64_t alignment, mode_t mode, int32_t lock_timeout_ms,
                                                   Progress progress) {
  std::sort(tensors.begin(), tensors.end(), [](const HeldTensor &a, const HeldTensor &b) {
    return write::canonical_before(a.declared.dtype, a.declared.name, b.declared.dtype, b.declared.name);
  });
  std::vector<NotedTensor> noted;
  std::vector<write::NewTensor> declared;
  for (HeldTensor &t : tensors) {
    noted.push_back(t.noted);
    declared.push_back(std::move(t.declared));
  }
  std::vector<std::string_view> names;
  names.reserve(declared.size());
  for (const write::NewTensor &t : declared) names.push_back(t.name);
  auto metadata = spell_delta(describe(noted), names);
  write::SaveOptions options;
  options.layout = write::Layout::canonical;
  options.alignment = alignment;
  options.mode = mode;
  options.lock_timeout_ms = lock_timeout_ms;
  options.progress = std::move(progress);
  return write::Writer::open(env, path, std::move(declared), std::move(metadata), std::move(options));
}

}  // namespace st::store
