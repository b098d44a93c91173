// The border to libst.so, in C: os/remote_abi.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "os/remote_abi.h"
#include "remote/curl_transport.h"
#include "remote/object.h"
#include "remote/stopping.h"

struct st_remote_object {
  std::unique_ptr<st::remote::Object> object;
  st_remote_object *before = nullptr;  // that a child has left
};

namespace st::remote {
namespace {

// `n` bytes, of which the last is NUL.
void copy_text(char *out, size_t n, std::string_view text) noexcept {
  const size_t taken = std::min(text.size(), n - 1);
  std::memcpy(out, text.data(), taken);
  out[taken] = '\0';
}

void fill(st_remote_error *out, Status status, std::string_view message) noexcept {
  if (!out) return;
  out->status = static_cast<int32_t>(status);
  copy_text(out->message, sizeof out->message, message);
}

template <class Body>
int32_t boundary(st_remote_error *error, Body body) noexcept {
  try {
    const Result<void> done = body();
    if (done) return 0;
    fill(error, done.error().status, done.error().message);
  } catch (const std::bad_alloc &) {
    fill(error, Status::nomem, "no memory for this call; free some and try again");
  } catch (...) {
    fill(error, Status::internal, "an unexpected exception inside libst-remote; please report it");
  }
  return 1;
}

Stops asked_of(st_remote_stops stops) {
  return [stops] { return stops() != 0; };
}

bool is_of_parent(const st_remote_object *object) noexcept {
  return object->object->store()->is_of_parent();
}

// libst refuses that before. But not where it was not told of the fork: one by the system call alone.
Result<void> refuse_in_child(const st_remote_object *object) {
  if (!is_of_parent(object)) return {};
  return fail(Status::unsupported, "cannot read ", in_quotes(object->object->shown()),
              ": the parent process opened it, before a fork; open it anew");
}

int32_t open(const char *url, st_remote_object *beside, st_remote_stops stops, st_remote_object **out,
             st_remote_error *error) noexcept {
  return boundary(error, [&]() -> Result<void> {
    if (beside) ST_TRY(refuse_in_child(beside));
    const Stops asked = asked_of(stops);
    const Stopping stopping(asked);
    Surroundings from = Surroundings::of_process();
    const Limits limits = Limits::of(from);
    const NewTransport transports = curl_transports(limits, from, Idle::end_all);
    from.ask = asks_by(transports);
    if (beside) {
      from.hub_commit = beside->object->commit();
      from.known_region = beside->object->region();
    }
    ST_TRY(auto site, site_of(url, from));
    std::shared_ptr<Store> store;
    if (beside) {
      store = beside->object->store();
    } else {
      store = std::make_shared<Store>(transports, limits);
    }
    auto made = std::make_unique<st_remote_object>();
    ST_TRY(made->object, Object::open(std::move(store), std::move(site), asked));
    *out = made.release();
    return {};
  });
}

int32_t read(st_remote_object *object, const st_remote_range *ranges, size_t n, st_remote_stops stops,
             st_remote_error *error) noexcept {
  return boundary(error, [&]() -> Result<void> {
    ST_TRY(refuse_in_child(object));
    std::vector<Wanted> wanted;
    wanted.reserve(n);
    for (size_t i = 0; i < n; ++i)
      wanted.push_back({ranges[i].offset, ranges[i].nbytes, static_cast<std::byte *>(ranges[i].to)});
    const Stops asked = asked_of(stops);
    const Stopping stopping(asked);
    return object->object->read(wanted, asked);
  });
}

void tell(const st_remote_object *object, char *out, size_t n) noexcept {
  if (is_of_parent(object)) return copy_text(out, n, "");  // a thread of the parent may have locked the pace
  boundary(nullptr, [&]() -> Result<void> {
    copy_text(out, n, object->object->store()->pace().told());
    return {};
  });
}

// A farewell by the connections of the parent would end them for it. And a thread of the parent may have been amid a
// change of the object. So a child leaves the object as it is, where leak checkers find it.
void close(st_remote_object *object) noexcept {
  if (!is_of_parent(object)) return delete object;
  static constinit std::atomic<st_remote_object *> left = nullptr;
  object->before = left.load();
  while (!left.compare_exchange_weak(object->before, object)) {
  }
}

constexpr st_remote_calls calls = {
    ST_REMOTE_VERSION,
    open,
    [](const st_remote_object *object) noexcept { return object->object->size(); },
    [](const st_remote_object *object) noexcept { return object->object->shown().c_str(); },
    [](const st_remote_object *object) noexcept { return object->object->store()->limits().connections; },
    [](const st_remote_object *object) noexcept { return object->object->store()->limits().longest_piece; },
    tell,
    read,
    close,
};

}  // namespace
}  // namespace st::remote

extern "C" __attribute__((visibility("default"))) const st_remote_calls *st_remote_v1(uint32_t version) noexcept;

// No fork happens while this library is loaded. So what is made once in a process is made here.
const st_remote_calls *st_remote_v1(uint32_t version) noexcept {
  if (version != ST_REMOTE_VERSION) return nullptr;
  st::remote::begin_curl();
  st::remote::boundary(nullptr, []() -> st::Result<void> {
    st::remote::Idle::of_process();
    st::remote::Surroundings::of_process();  // without memory the first open makes it
    return {};
  });
  return &st::remote::calls;
}
