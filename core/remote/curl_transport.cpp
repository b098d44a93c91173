#include "remote/curl_transport.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <random>

#include "base/error.h"
#include "base/standard_streams.h"
#include "remote/certificates.h"
#include "remote/credentials/secret.h"

namespace st::remote {
namespace {

constexpr size_t longest_text = 16u << 10;

// A connection that the server has closed may raise SIGPIPE in OpenSSL's write. It must not reach the program.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigset_t waiting;
    sigpending(&waiting);
    was_waiting_ = sigismember(&waiting, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const struct timespec at_once = {};
    if (!was_waiting_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal &) = delete;
  WithoutPipeSignal &operator=(const WithoutPipeSignal &) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_waiting_;
};

struct Settings {
  Limits limits;
  std::string certificates;  // a file; empty: those that libcurl was built for
  std::string more;          // folders of certificates, which count too; empty: none
  void (*make_room)();
};

uint64_t steady_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

struct Flight {
  uint64_t *came = nullptr;       // of the transport
  void (*make_room)() = nullptr;  // the same
  uint64_t heard_ms = steady_ms();
  uint64_t counted_from_ms = heard_ms, counted = 0;  // bytes since then, of the head or of the body
  Request request;
  Answer answer;
  CURL *easy = nullptr;
  curl_slist *fields = nullptr;
  bool head_ended = false;
  bool no_memory = false;
  bool has_line_ends = false;  // in what is sent
  bool has_socket = false;
  int no_socket = 0;  // why this process could get none
  char reason[CURL_ERROR_SIZE] = "";
};

// A key or a token with more after it would be a request of its own.
bool has_line_ends(const Request &request) {
  return std::any_of(request.fields.begin(), request.fields.end(),
                     [](const std::string &field) { return field.find_first_of("\r\n") != field.npos; });
}

// libcurl is C: nothing is thrown through it. 0 ends the request.
template <class Take>
size_t without_throwing(Flight &flight, Take take) noexcept {
  try {
    return take();
  } catch (const std::bad_alloc &) {
    flight.no_memory = true;
    return 0;
  }
}

size_t on_field(char *data, size_t, size_t n, void *user) {
  auto &flight = *static_cast<Flight *>(user);
  flight.heard_ms = steady_ms();
  flight.counted += n;
  if (flight.head_ended) return n;  // a trailer
  return without_throwing(flight, [&] { return flight.answer.head.take({data, n}) ? n : 0; });
}

void end_head(Flight &flight) {
  if (flight.head_ended) return;
  flight.head_ended = true;
  flight.counted_from_ms = steady_ms();  // a long head is no progress of the body
  flight.counted = 0;
  long code = 0;
  curl_easy_getinfo(flight.easy, CURLINFO_RESPONSE_CODE, &code);
  flight.answer.head.code = static_cast<int>(code);
  flight.answer.fitted = code != 0 && flight.request.fits && flight.request.fits(flight.answer.head);
}

size_t take_body(Flight &flight, const char *data, size_t n) {
  end_head(flight);
  flight.heard_ms = steady_ms();
  flight.counted += n;
  Answer &answer = flight.answer;
  if (!answer.fitted) {  // of a long one the begin is enough
    const size_t taken = std::min(n, longest_text - answer.text.size());
    answer.text.append(data, taken);
    return answer.text.size() < longest_text ? n : 0;
  }
  *flight.came += n;
  const uint64_t room = flight.request.room - answer.received, taken = std::min<uint64_t>(n, room);
  // Before the copy: behind it, the destination has taken the place of some of them in the cache.
  if (flight.request.comes) flight.request.comes(std::as_bytes(std::span(data, taken)));
  std::memcpy(flight.request.into + answer.received, data, taken);
  answer.received += taken;
  answer.too_long = taken < n;
  return taken;
}

size_t on_body(char *data, size_t, size_t n, void *user) {
  auto &flight = *static_cast<Flight *>(user);
  return without_throwing(flight, [&] { return take_body(flight, data, n); });
}

// libcurl takes no longer line of a head. Before 8.6 it says so as if there were no memory; and memory that was wanting
// may be there when one looks.
constexpr size_t longest_line = size_t{100} << 10;

bool may_have_too_long_a_line(const Flight &flight, CURLcode code) {
#if LIBCURL_VERSION_NUM >= 0x080600
  if (code == CURLE_TOO_LARGE) return true;
#endif
  if (code != CURLE_OUT_OF_MEMORY || flight.head_ended) return false;
  void *const room = ::operator new(16 * longest_line, std::nothrow);
  ::operator delete(room);
  return room != nullptr;
}

Cut cut_of(CURLcode code) {
  switch (code) {
    case CURLE_OK: return Cut::none;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return Cut::unreachable;
    case CURLE_OPERATION_TIMEDOUT: return Cut::stalled;
    case CURLE_SSL_CACERT_BADFILE: return Cut::crowded;  // perhaps: it is opened for each connection
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return Cut::hopeless;
    default: return Cut::broken;
  }
}

// The server, or OpenSSL, said why they do not agree: a certificate of ours that is wanted, a version of TLS, a port
// where nobody speaks it. Not what a broken connection shows as, or a server that is out of order. `begun`: the answer
// has. libcurl's sentence names the host where OpenSSL says nothing.
bool tls_refuses(CURLcode code, bool begun, std::string_view why) {
  constexpr std::string_view alerts[] = {"certificate required", "bad certificate",      "unknown ca",
                                         "handshake failure",    "protocol version",     "access denied",
                                         "unrecognized name",    "insufficient security"};
  constexpr std::string_view own[] = {"wrong version number", "unsupported protocol", "no protocols available"};
  const size_t said = why.find("SSL routines:");
  if (said == why.npos || begun) return false;
  const auto says = [&](std::string_view what) { return why.find(what, said) != why.npos; };
  if (code == CURLE_SSL_CONNECT_ERROR && std::any_of(std::begin(own), std::end(own), says)) return true;
  // By TLS 1.3 the server may say so after the handshake, as this side sees it.
  const bool is_tls = code == CURLE_SSL_CONNECT_ERROR || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
  return is_tls && std::any_of(std::begin(alerts), std::end(alerts), says);
}

// A proxy that does not let this machine through, or not without a password, will not do so the next time. Nor does one
// of a kind that libcurl does not know.
bool proxy_refuses(CURL *easy, std::string_view why) {
  if (why.starts_with("Unsupported proxy")) return true;
  long code = 0;
  curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &code);
  return code >= 400 && code < 500 && code != 408 && code != 429;
}

// On a connection that brought an answer before, no answer of HTTP may be what that one left there: a store may answer
// HEAD with a body. The next connection is a new one.
bool may_be_left_over(CURL *easy, CURLcode code) {
  long made = 0, sent = 0;
  curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &made);
  curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
  return code == CURLE_UNSUPPORTED_PROTOCOL && made == 0 && sent > 0;
}

// libcurl shows a proxy's URL that it cannot read, with its password, and cuts what is long.
std::string without_password(std::string why) {
  const size_t at = why.rfind('@'), quote = why.find('\'');
  const size_t begin = quote == why.npos ? 0 : quote + 1;
  if (at != why.npos && at >= begin)
    why.erase(begin, at + 1 - begin);
  else if (quote != why.npos && why.find("://", begin) != why.npos)
    why.erase(begin);
  return why;
}

bool is_crowded(int why) {
  return why == EMFILE || why == ENFILE;
}

// Or -errno.
int new_socket(const curl_sockaddr &address) {
  const int fd = socket(address.family, address.socktype | SOCK_CLOEXEC, address.protocol);
  return fd < 0 ? -errno : above_standard_streams(fd);
}

curl_socket_t open_socket(void *user, curlsocktype, struct curl_sockaddr *address) {
  Flight &flight = *static_cast<Flight *>(user);
  int fd = new_socket(*address);
  if (is_crowded(-fd)) {
    flight.make_room();
    fd = new_socket(*address);
  }
  if (fd >= 0) {
    flight.has_socket = true;
    return fd;
  }
  if (is_crowded(-fd) || fd == -EACCES || fd == -EPERM) flight.no_socket = -fd;  // and stays so
  return CURL_SOCKET_BAD;
}

bool is_folder(const std::string &path) {
  struct stat s = {};
  return stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

class CurlTransport final : public Transport {
 public:
  explicit CurlTransport(const Settings &settings) : settings_(settings), multi_(curl_multi_init()) {
    if (!multi_) throw std::bad_alloc();
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(settings_.limits.connections));
  }
  ~CurlTransport() override {
    if (is_of_parent()) return;
    const WithoutPipeSignal quiet;
    CurlTransport::drop_all();
    for (CURL *easy : idle_) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi_);
  }
  CurlTransport(const CurlTransport &) = delete;
  CurlTransport &operator=(const CurlTransport &) = delete;

  void get(uint64_t id, Request request) override {
    auto made = std::make_unique<Flight>();
    Flight &flight = *made;
    flight.came = &came_;
    flight.make_room = settings_.make_room;
    flight.request = std::move(request);
    flight.answer.id = id;
    flight.easy = an_easy();
    flights_.emplace(flight.easy, std::move(made));
    idle_.pop_back();
    for (const std::string &field : flight.request.fields) {
      curl_slist *longer = curl_slist_append(flight.fields, field.c_str());
      if (!longer) throw std::bad_alloc();
      flight.fields = longer;
    }
    flight.has_line_ends = has_line_ends(flight.request);
    set_up(flight);
    if (curl_multi_add_handle(multi_, flight.easy) != CURLM_OK) throw std::bad_alloc();
  }

  uint64_t received(uint64_t id) const override { return flight_of(id).answer.received; }

  void drop(uint64_t id) override {
    if (is_of_parent()) return;
    const WithoutPipeSignal quiet;
    land(flight_of(id).easy);
  }

  void drop_all() override {
    if (is_of_parent()) return;
    const WithoutPipeSignal quiet;
    while (!flights_.empty()) land(flights_.begin()->first);
  }

  std::optional<Answer> next(uint64_t wait_ms) override {
    if (is_of_parent()) return left_to_parent();
    const WithoutPipeSignal quiet;
    for (const uint64_t until = now_ms() + wait_ms;;) {
      int running = 0, told = 0;
      curl_multi_perform(multi_, &running);
      while (CURLMsg *message = curl_multi_info_read(multi_, &told))
        if (message->msg == CURLMSG_DONE) return answer_of(message->easy_handle, message->data.result);
      const uint64_t now = steady_ms();
      const auto quiet_longest = std::min_element(flights_.begin(), flights_.end(), [](const auto &a, const auto &b) {
        return a.second->heard_ms < b.second->heard_ms;
      });
      uint64_t wake = std::min(until, now + 1000);
      if (quiet_longest != flights_.end()) {
        const uint64_t stalled = quiet_longest->second->heard_ms + settings_.limits.stall_ms;
        if (now >= stalled) return stalled_answer(quiet_longest->first);
        wake = std::min(wake, stalled);
      }
      if (CURL *easy = one_that_drips(now)) return stalled_answer(easy);
      if (now >= until) return std::nullopt;
      curl_multi_poll(multi_, nullptr, 0, static_cast<int>(wake - now), nullptr);
    }
  }

  uint64_t came() const override { return came_; }
  uint64_t now_ms() override { return steady_ms(); }
  int64_t unix_time() override { return time(nullptr); }
  uint32_t random() override { return random_(); }

 private:
  // In a child of a fork the connections are the parent's. To end a request, or one of them, would say a farewell for
  // it.
  bool is_of_parent() const { return this_process() != process_; }
  // No call of libcurl: it might end the connection.
  std::optional<Answer> left_to_parent() {
    if (flights_.empty()) return std::nullopt;
    Answer answer = std::move(flights_.begin()->second->answer);
    flights_.erase(flights_.begin());
    answer.cut = Cut::hopeless;
    answer.why = "the parent process asked for it, before a fork; open it anew";
    return answer;
  }
  const Flight &flight_of(uint64_t id) const {
    return *std::find_if(flights_.begin(), flights_.end(), [&](const auto &f) {
              return f.second->answer.id == id;
            })->second;
  }

  // The last of those that are idle. There is room for all, so that none needs memory to land.
  CURL *an_easy() {
    idle_.reserve(idle_.size() + flights_.size() + 1);
    if (idle_.empty()) {
      CURL *easy = curl_easy_init();
      if (!easy) throw std::bad_alloc();
      idle_.push_back(easy);
    }
    return idle_.back();
  }

  template <class Value>
  static void set(CURL *easy, CURLoption option, Value value) {
    if (curl_easy_setopt(easy, option, value) == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  }

  void set_up(Flight &flight) const {
    CURL *easy = flight.easy;
    set(easy, CURLOPT_URL, flight.has_line_ends ? "" : flight.request.url.c_str());
    set(easy, CURLOPT_HTTPHEADER, flight.fields);
    if (flight.request.method == "HEAD") {
      set(easy, CURLOPT_NOBODY, 1L);
    } else if (flight.request.method != "GET") {
      set(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(flight.request.body.size()));
      set(easy, CURLOPT_POSTFIELDS, flight.request.body.c_str());
      set(easy, CURLOPT_CUSTOMREQUEST, flight.request.method.c_str());
    }
    if (flight.request.no_proxy) set(easy, CURLOPT_NOPROXY, "*");
    set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set(easy, CURLOPT_PATH_AS_IS, 1L);  // what is signed is what is sent
    set(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // a connection each
    set(easy, CURLOPT_HTTP_TRANSFER_DECODING, 1L);
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    set(easy, CURLOPT_OPENSOCKETDATA, &flight);
    set(easy, CURLOPT_QUICK_EXIT, 1L);          // without waiting for a name to be resolved
    set(easy, CURLOPT_BUFFERSIZE, 256L << 10);  // of each; no larger one was faster
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings_.limits.connect_ms));
    set(easy, CURLOPT_USERAGENT, "libst/2");
    set(easy, CURLOPT_ERRORBUFFER, flight.reason);
    set(easy, CURLOPT_HEADERFUNCTION, on_field);
    set(easy, CURLOPT_HEADERDATA, &flight);
    set(easy, CURLOPT_WRITEFUNCTION, on_body);
    set(easy, CURLOPT_WRITEDATA, &flight);
    trust(easy, flight.request.certificates);
  }

  // A proxy with a certificate is held against the same. Where a file or a folder is named for one request, it alone
  // counts, as with AWS's own tools.
  void trust(CURL *easy, const std::string &own) const {
    const bool is_own = !own.empty(), has_folder = is_own && is_folder(own);
    const std::string &file = is_own ? own : settings_.certificates, &folder = is_own ? own : settings_.more;
    if (!file.empty())
      for (const CURLoption option : {CURLOPT_CAINFO, CURLOPT_PROXY_CAINFO})
        set(easy, option, has_folder ? nullptr : file.c_str());
    if (!folder.empty())
      for (const CURLoption option : {CURLOPT_CAPATH, CURLOPT_PROXY_CAPATH})
        set(easy, option, is_own && !has_folder ? nullptr : folder.c_str());
  }

  // A byte now and then is no progress: it would hold a call for good.
  CURL *one_that_drips(uint64_t now) {
    for (auto &[easy, flight] : flights_) {
      if (now - flight->counted_from_ms < 3 * settings_.limits.stall_ms) continue;
      if (flight->counted < settings_.limits.drip) return easy;
      flight->counted_from_ms = now;
      flight->counted = 0;
    }
    return nullptr;
  }

  // Ends it, whether it was answered or not.
  Answer land(CURL *easy) {
    const auto found = flights_.find(easy);
    Flight &flight = *found->second;
    curl_multi_remove_handle(multi_, easy);
    curl_easy_reset(easy);
    for (curl_slist *field = flight.fields; field; field = field->next)
      OPENSSL_cleanse(field->data, std::strlen(field->data));
    curl_slist_free_all(flight.fields);
    for (std::string &field : flight.request.fields) wipe(field);
    wipe(flight.request.body);
    wipe(flight.request.url);  // which may be signed
    idle_.push_back(easy);
    Answer answer = std::move(flight.answer);
    flights_.erase(found);
    return answer;
  }

  // libcurl's own limit is of a mean over seconds, and so is late.
  Answer stalled_answer(CURL *easy) {
    const Flight &flight = *flights_.at(easy);
    const bool drips = steady_ms() - flight.heard_ms < settings_.limits.stall_ms;
    const uint64_t counted = flight.counted;
    Answer answer = land(easy);
    answer.cut = Cut::stalled;
    answer.why =
        drips ? text("no more than ", counted, " bytes came in ", 3 * settings_.limits.stall_ms / 1000, " seconds")
              : text("nothing came for ", settings_.limits.stall_ms / 1000, " seconds");
    return answer;
  }

  Answer answer_of(CURL *easy, CURLcode code) {
    Flight &flight = *flights_.at(easy);
    const bool long_line = may_have_too_long_a_line(flight, code);
    if (flight.no_memory || (code == CURLE_OUT_OF_MEMORY && !long_line)) throw std::bad_alloc();
    end_head(flight);
    if (!long_line) long_lines_ = 0;
    curl_off_t head_us = 0;
    curl_easy_getinfo(easy, CURLINFO_STARTTRANSFER_TIME_T, &head_us);
    flight.answer.head_ms = static_cast<uint64_t>(head_us) / 1000;
    // It was stopped here: there is nothing more to know.
    const bool enough =
        code == CURLE_WRITE_ERROR && (flight.answer.too_long || flight.answer.text.size() >= longest_text);
    flight.answer.cut = enough ? Cut::none : cut_of(code);
    if (may_be_left_over(easy, code)) flight.answer.cut = Cut::broken;
    if (tls_refuses(code, flight.answer.head.code != 0, flight.reason)) flight.answer.cut = Cut::refused;
    if (flight.answer.cut != Cut::none && proxy_refuses(easy, flight.reason)) flight.answer.cut = Cut::hopeless;
    if (flight.answer.cut == Cut::crowded) settings_.make_room();
    if (flight.answer.cut == Cut::unreachable && flight.no_socket && !flight.has_socket) {
      flight.answer.cut = is_crowded(flight.no_socket) ? Cut::crowded : Cut::hopeless;
      flight.answer.why = os_error(flight.no_socket, "open", "a socket").message;
    } else if (long_line) {
      if (++long_lines_ > 1) flight.answer.cut = Cut::hopeless;
      flight.answer.why = text("the head of its answer has a line of more than ", longest_line >> 10, " KiB");
    } else if (flight.has_line_ends) {
      flight.answer.why = "a key, a token or a region that is to be sent has a line end in it";
    } else if (flight.answer.cut != Cut::none) {
      flight.answer.why = without_password(flight.reason[0] ? flight.reason : curl_easy_strerror(code));
      if (flight.answer.cut == Cut::stalled) flight.answer.why = "nothing came in time: " + flight.answer.why;
      if (flight.answer.cut == Cut::crowded)
        flight.answer.why += "; if it is a good one, this process has too many open files (ulimit -n)";
    }
    return land(easy);
  }

  const Settings settings_;
  CURLM *const multi_;
  const int64_t process_ = this_process();
  std::map<CURL *, std::unique_ptr<Flight>> flights_;
  std::vector<CURL *> idle_;
  uint64_t came_ = 0;
  uint32_t long_lines_ = 0;  // one after the other: the first may have been want of memory
  std::mt19937 random_{std::random_device{}()};
};

std::string certificates_of_process(const Surroundings &from) {
  const char *of_libcurl = curl_version_info(CURLVERSION_NOW)->cainfo;
  Dl_info here = {};
  std::string own;
  if (dladdr(reinterpret_cast<const void *>(&certificates_of_process), &here) != 0 && here.dli_fname)
    own = here.dli_fname;
  const auto is_readable = [](const std::string &path) { return access(path.c_str(), R_OK) == 0; };
  return certificates(from, of_libcurl ? of_libcurl : "", own.substr(0, own.rfind('/')), is_readable, is_folder);
}

}  // namespace

void begin_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

NewTransport curl_transports(const Limits &limits, const Surroundings &from, void (*make_room)()) {
  begin_curl();
  Settings settings{limits, certificates_of_process(from), folder_of_certificates(from, is_folder), make_room};
  return [settings] { return std::make_unique<CurlTransport>(settings); };
}

}  // namespace st::remote
