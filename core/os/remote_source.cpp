#include "os/remote_source.h"

#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/interrupt.h"
#include "base/percent.h"
#include "base/url.h"
#include "os/process.h"
#include "os/remote_abi.h"
#include "os/remote_library.h"

namespace st::os {
namespace {

static_assert(sizeof(st_remote_range) == sizeof(Source::Range) &&
                  offsetof(st_remote_range, nbytes) == offsetof(Source::Range, nbytes) &&
                  offsetof(st_remote_range, to) == offsetof(Source::Range, to),
              "a list of one is a list of the other");

bool is_http(std::string_view url) {
  return strncasecmp(url.data(), "http", 4) == 0 && is_url(url);
}

#ifdef ST_REMOTE_INSIDE  // a program that was compiled with it, as the crate's feature `remote` does
extern "C" const st_remote_calls *st_remote_v1(uint32_t version);

Result<const st_remote_calls *> load() {
  return st_remote_v1(ST_REMOTE_VERSION);
}
#else

Result<const st_remote_calls *> load() {
  ST_TRY(void *const found, find_in_remote_library(ST_REMOTE_ENTRY));
  st_remote_entry entry = nullptr;
  std::memcpy(&entry, &found, sizeof entry);
  const st_remote_calls *calls = entry ? entry(ST_REMOTE_VERSION) : nullptr;
  if (!calls || calls->version != ST_REMOTE_VERSION)
    return fail(Status::unsupported, "libst-remote is of another version of libst; install the one of this version");
  return calls;
}
#endif

// A fork waits for the end of a load, whose libraries have locks of their own: a child would find them locked for ever.
// It does not wait for long. Before glibc 2.36, and with musl, a library that is loaded may wait for the fork.
std::mutex loading;
constinit thread_local bool holds_loading = false;  // this thread, as it forks
constinit bool is_amid_load = false;                // this child of a fork is, for ever

bool holds_within(std::mutex &mutex, std::chrono::milliseconds most) {
  for (const auto until = std::chrono::steady_clock::now() + most; !mutex.try_lock();) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void before_fork() {
  holds_loading = !is_amid_load && holds_within(loading, std::chrono::seconds(2));
}

void after_fork() {
  if (holds_loading) loading.unlock();
}

void in_child_of_fork() {
  is_amid_load = !holds_loading;
  after_fork();
}

[[maybe_unused]] const bool forks_wait = [] {
  at_fork(before_fork, after_fork, in_child_of_fork);
  return true;
}();

// Not kept where it failed: it may be installed meanwhile.
Result<const st_remote_calls *> remote_calls() {
  static const st_remote_calls *known = nullptr;
  if (is_amid_load)
    return fail(Status::unsupported,
                "this process was forked while another thread loaded libst-remote, and cannot load it any more; "
                "start a program anew, or open a URL before the fork");
  const std::lock_guard lock(loading);
  if (!known) {
    ST_TRY(known, load());
  }
  return known;
}

int errno_of(int32_t status) {
  switch (static_cast<Status>(status)) {
    case Status::no_file: return ENOENT;
    case Status::permission: return EACCES;
    case Status::file_changed: return ESTALE;
    case Status::unsupported: return EOPNOTSUPP;
    case Status::checksum: return EBADMSG;
    case Status::nomem: return ENOMEM;
    default: return EIO;
  }
}

int stops() noexcept {
  return InterruptCheck::stops() ? 1 : 0;
}

class RemoteSource final : public Source {
 public:
  RemoteSource(const st_remote_calls &calls, st_remote_object *object)
      : Source(calls.name(object), calls.size(object), calls.most_reads(object)), calls_(calls), object_(object) {}
  ~RemoteSource() override { calls_.close(object_); }

  int read(std::span<const Range> ranges) override {
    st_remote_error error = {};
    const auto *given = reinterpret_cast<const st_remote_range *>(ranges.data());
    if (calls_.read(object_, given, ranges.size(), stops, &error) == 0) return 0;
    if (made_in_.this_process()) {  // else it has forked amid the read, and a thread of the parent may have the mutex
      const std::lock_guard lock(mutex_);
      why_ = error.message;
    }
    return errno_of(error.status);
  }
  const std::string *url() const override { return &name(); }
  uint64_t best_read() const override { return calls_.best_read(object_); }
  uint64_t long_read() const override { return 4 * best_read(); }
  std::string how() const override {
    char out[200] = "";
    calls_.tell(object_, out, sizeof out);
    return out;
  }
  std::string why() const override {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  st_remote_object *object() const { return object_; }

 private:
  const st_remote_calls &calls_;
  st_remote_object *const object_;
  const MadeIn made_in_{Env::posix()};
  mutable std::mutex mutex_;
  std::string why_;  // of the read that failed last
};

}  // namespace

bool is_url(std::string_view path) {
  return !scheme_of(path).empty();
}

std::string path_of_url(const std::string &url) {
  return is_url(url) ? url.substr(0, end_of_path(url)) : url;
}

std::string url_in(const std::string &folder, std::string_view name) {
  return is_http(folder) ? folder + percent_encoded(name, true) : text(folder, name);
}

Result<void> load_remote() {
  ST_TRY(remote_calls());
  return {};
}

Result<std::unique_ptr<Source>> open_url(const std::string &url, const Source *beside) {
  ST_TRY(const auto *calls, remote_calls());
  const auto *other = dynamic_cast<const RemoteSource *>(beside);
  st_remote_error error = {};
  st_remote_object *object = nullptr;
  if (calls->open(url.c_str(), other ? other->object() : nullptr, stops, &object, &error) != 0) {
    if (auto stopped = InterruptCheck::stopped()) return Failure(*std::move(stopped));
    return fail(static_cast<Status>(error.status), error.message);
  }
  return std::make_unique<RemoteSource>(*calls, object);
}

}  // namespace st::os
