// Requests to a server: one method a request, no policy. What is asked again, where and when, is decided above
// (pull.h). libcurl stands behind it (curl_transport.h); in tests a simulated store does, with a clock of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "remote/head.h"

namespace st::remote {

struct Request {
  std::string url;
  std::vector<std::string> fields;  // "Name: value"
  std::byte *into = nullptr;        // `room` bytes, until the answer was taken, or the request dropped
  uint64_t room = 0;
  // These bytes go into `into`, behind those before. They lie in the processor's cache. By the thread that is in
  // next().
  std::function<void(std::span<const std::byte>)> comes = {};
  // Is this the answer whose body belongs into `into`? Asked once, by the thread that is in next().
  std::function<bool(const Head &)> fits = {};
  std::string method = "GET";
  std::string body = {};
  std::string certificates = {};  // a file of authorities for this one alone; empty: those of the transport
  bool no_proxy = false;          // of this machine, or beside it: a proxy would lead away
};

// How a request ended that the server did not answer whole.
enum class Cut {
  none,
  unreachable,  // no connection
  broken,       // the connection ended within the answer
  stalled,      // nothing came for too long
  refused,      // by TLS: the two do not agree
  crowded,      // no connection, and it seems that this process may have no more descriptors
  hopeless,     // a certificate that does not verify, a URL that is none: it will end in the same way again
};

struct Answer {
  uint64_t id = 0;
  Cut cut = Cut::none;
  std::string why = {};  // of the cut
  Head head = {};
  bool fitted = false;    // the body went into `into`
  bool too_long = false;  // and was longer than its room
  uint64_t received = 0;  // bytes of it in `into`
  uint64_t head_ms = 0;   // from get() to its first byte
  std::string text = {};  // the begin of a body that did not fit: an error's
};

// For one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  // Sends it. Its answer comes out of next(), with this id.
  virtual void get(uint64_t id, Request request) = 0;
  // Bytes of its answer that are in `into` so far, and are good.
  virtual uint64_t received(uint64_t id) const = 0;
  // No answer to it will come, and `into` is the caller's again.
  virtual void drop(uint64_t id) = 0;
  // The same of all that were sent and have no answer yet.
  virtual void drop_all() = 0;
  // Waits for an answer. None after `wait_ms`, also where nothing was sent.
  virtual std::optional<Answer> next(uint64_t wait_ms) = 0;
  // Bytes of all bodies that fitted so far, also of answers that are under way.
  virtual uint64_t came() const = 0;
  virtual uint64_t now_ms() = 0;    // a clock that never goes back
  virtual int64_t unix_time() = 0;  // seconds
  virtual uint32_t random() = 0;
};

// Makes one more.
using NewTransport = std::function<std::unique_ptr<Transport>()>;

}  // namespace st::remote
