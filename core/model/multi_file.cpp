#include "model/multi_file.h"

#include <algorithm>
#include <utility>

#include "read/thread_pool.h"

namespace st::store {

MultiFile::MultiFile(os::Env &env, OpenOptions options)
    : env_(env), options_(std::move(options)), member_options_(options_) {
  if (!member_options_.descriptors) member_options_.descriptors = std::make_shared<os::Descriptors>(env);
  if (!member_options_.account) member_options_.account = std::make_shared<Account>();
  // A group of workers shares out the tensors of all members, not of each.
  member_options_.worker_index = 0;
  member_options_.worker_count = 1;
}

bool MultiFile::lends(const void *bytes, uint64_t n) const {
  bool found = false;
  each_merged([&](const Merged &catalogue) {
    for (const Opened &member : catalogue.opened()) found = found || member.data_file->lends(bytes, n);
  });
  return found;
}

// Member by member, in the order of the model. place(i): of request i, which has bytes[i]. They are looked at where
// they lie, as a copy of many takes memory beside what is read.
template <class PlaceOf>
std::vector<MultiFile::Part> MultiFile::parts_of(const std::vector<uint64_t> &bytes, PlaceOf place) {
  std::vector<size_t> order(bytes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a).number < place(b).number; });
  std::vector<Part> parts;
  for (const size_t i : order) {
    const Place &p = place(i);
    if (parts.empty() || parts.back().snapshot != p.snapshot) parts.push_back({p.number, p.member, p.snapshot, {}, 0});
    parts.back().requests.push_back(i);
    parts.back().bytes += bytes[i];
  }
  return parts;
}

// As many members at once as the storage likes readers, each with its share of
// them. Progress is told by the calling thread alone.
Result<void> MultiFile::share_out(const std::vector<Part> &parts, const Progress &progress, const Work &work) const {
  if (parts.empty()) return {};
  const Control control = control_of(progress);
  const uint32_t threads = std::max(parts.front().member->strategy().threads, 1u);
  const size_t n = std::min<size_t>(parts.size(), threads);
  const Share each{threads / static_cast<uint32_t>(n), parts.size()};
  uint64_t total = 0;
  for (const Part &p : parts) total += p.bytes;

  read::ThreadPool pool(env_);
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> done = 0;
  auto body = [&](size_t, bool calling) -> Result<void> {
    for (size_t i = next++; i < parts.size() && !pool.stopped(); i = next++) {
      if (control.interrupted()) ST_TRY(control.check(done, total));
      uint64_t told = 0;
      const Progress part_progress = [&](uint64_t now, uint64_t) {
        done += now - std::exchange(told, now);
        if (pool.stopped() || control.interrupted()) return false;
        if (calling) return !control.progress() || control.progress()(done, total);
        pool.tell();
        return true;
      };
      auto worked = work(parts[i], part_progress, each);
      if (!worked && control.interrupted()) return control.check(done, total);
      if (!worked) {
        worked.error().shard = parts[i].number;
        return worked;
      }
      done += parts[i].bytes - told;
      if (!calling) pool.tell();
    }
    return {};
  };
  ST_TRY(pool.run(n, body, [&] { return control.check(done, total); }));
  return control.check(total, total);
}

Result<void> MultiFile::read_many(const std::vector<PlacedRequest> &requests, const Progress &progress) const {
  std::vector<uint64_t> bytes;
  bytes.reserve(requests.size());
  for (const PlacedRequest &r : requests) bytes.push_back(r.slice ? r.slice->nbytes() : r.place.tensor().nbytes);
  const auto place = [&](size_t i) -> const Place & { return requests[i].place; };
  return share_out(parts_of(bytes, place), progress, [&](const Part &part, const Progress &told, const Share &share) {
    std::vector<BulkRequest> in_member;
    in_member.reserve(part.requests.size());
    for (const size_t i : part.requests)
      in_member.push_back({place(i).index, requests[i].slice, requests[i].to, requests[i].fresh});
    return part.member->read_many(*part.snapshot, in_member, told, share);
  });
}

Result<std::vector<Place>> MultiFile::own_part_of(const Catalogue &catalogue, const Progress &progress) const {
  auto all = catalogue.all(progress);
  if (!all || options_.worker_count <= 1) return all;
  uint64_t total = 0, at = 0;
  for (const Place &p : *all) total += p.tensor().nbytes;
  const WorkersPart part(options_, total);
  std::vector<Place> mine;
  for (const Place &p : *all) {
    if (part.has(at)) mine.push_back(p);
    at += p.tensor().nbytes;
  }
  return mine;
}

Result<void> MultiFile::prefetch(const Catalogue &catalogue, std::optional<std::vector<Place>> places,
                                 const Progress &progress) const {
  if (!places) {
    ST_TRY(places, own_part_of(catalogue, progress));
  }
  std::sort(places->begin(), places->end(), [](const Place &a, const Place &b) { return a.global < b.global; });
  std::vector<uint64_t> bytes;
  uint64_t room = options_.memory_limit ? options_.memory_limit : UINT64_MAX;
  for (const Place &p : *places) {
    const uint64_t n = std::min(p.tensor().nbytes, room);  // of the last one that much, as of a single file
    room -= n;
    bytes.push_back(n);
    if (n == p.tensor().nbytes) continue;
    if (options_.log)
      options_.log(LogLevel::info, text("memory_limit ends this prefetch after ", options_.memory_limit, " bytes"));
    break;
  }
  places->resize(bytes.size());
  const auto place = [&](size_t i) -> const Place & { return (*places)[i]; };
  return share_out(parts_of(bytes, place), progress, [&](const Part &part, const Progress &told, const Share &share) {
    std::vector<size_t> in_member;
    for (const size_t i : part.requests) in_member.push_back(place(i).index);
    return part.member->prefetch(*part.snapshot, std::move(in_member), told,
                                 {share.threads, share.members, part.bytes});
  });
}

Result<void> MultiFile::load(const Catalogue &catalogue, std::optional<std::vector<Place>> places, bool reserved_pages,
                             bool direct, const Progress &progress) const {
  if (!places) {
    ST_TRY(places, catalogue.all(progress));
  }
  std::vector<uint64_t> bytes;
  for (const Place &p : *places) bytes.push_back(p.tensor().nbytes);
  const auto place = [&](size_t i) -> const Place & { return (*places)[i]; };
  return share_out(parts_of(bytes, place), progress, [&](const Part &part, const Progress &told, const Share &share) {
    std::vector<size_t> in_member;
    for (const size_t i : part.requests) in_member.push_back(place(i).index);
    return part.member->load(*part.snapshot, std::move(in_member), reserved_pages, direct, told, share);
  });
}

}  // namespace st::store
