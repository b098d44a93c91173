// A store in memory, in place of the network. It answers as S3 does, but as its script says at the n-th request. Time
// passes only where somebody waits.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>

#include "remote/crc.h"
#include "remote/judge.h"
#include "remote/transport.h"

namespace st::remote {

// What happens to a request.
enum class Fault {
  none,
  refused,      // no connection
  crowded,      // no descriptor for one
  cut_at_once,  // the connection ends before the head
  cut_half,     // and in the middle of the body
  short_body,   // a whole answer, by a proxy that lost the second half
  silence,      // nothing comes, for ever: the transport's own limit ends it
  error_500,
  slow_down_503,
  busy_503,      // for `again_in` seconds, by Retry-After
  too_many_429,  // until `again_in` seconds have gone by
  wrong_range,   // the bytes before those asked for, and it says so
  lying_range,   // it says the range that was asked for, and of another size
  wrong_etag,
  no_etag,
  replaced,              // from now on the object is another one
  replaced_without_412,  // and the store knows no If-Match
  removed,
  encoded,  // gzip
  forbidden,
  expired,   // the keys
  whole,     // 200 with all of it
  too_long,  // more than it says
  flipped,   // a bit of the body is another
};

class SimulatedStore {
 public:
  explicit SimulatedStore(uint64_t size) : bytes_(size) {
    for (uint64_t i = 0; i < size; ++i) bytes_[i] = byte_of(i);
    checksum_ = base64(crc_of(Crc::crc32c, bytes_));
  }
  // The first object has these; the second has others everywhere.
  static std::byte byte_of(uint64_t i) { return static_cast<std::byte>(i * 7 + i / 251 + 1); }

  uint64_t size() const { return bytes_.size(); }

  std::vector<Fault> script;  // of the requests from the first on; none after its end
  uint64_t requests = 0, spoilt = 0;
  uint64_t now = 0, came = 0;
  uint64_t slow = 0;        // so many times a wait brings a part, and no answer
  uint64_t part = 1024;     // of so many bytes
  uint64_t takes = 0;       // ms from a request to its answer
  uint64_t late_every = 0;  // each so many-th request takes 10 s, and half of the body comes at once; 0: none
  uint64_t sent = 0, dropped = 0, most_flying = 0;
  uint64_t again_in = 0;
  uint64_t descriptors = UINT64_MAX, connected = 0;  // a transport keeps its connections for the next requests
  bool tells_checksum = false;
  std::vector<std::pair<std::string, std::string>> also;  // fields of each answer
  int head_code = 0;              // of the answers to HEAD, which tell the checksum; 0: they do not come
  uint64_t head_takes = 0;        // ms
  bool in_any_place = false;      // requests may write to one place
  std::vector<std::string> seen;  // the field "range" of each request
  uint64_t heads = 0;             // requests for the head alone that were answered, which are in none of these
  uint64_t heads_sent = 0;

  // `told`: so many bytes of the body came before.
  Answer answer(const Request &request, uint64_t id, uint64_t told = 0) {
    if (request.method == "HEAD") return head(request, id);
    const Fault fault = requests < script.size() ? script[requests] : Fault::none;
    ++requests;
    spoilt += fault != Fault::none;
    Answer out;
    out.id = id;
    const std::string range = field(request, "range");
    seen.push_back(range);
    const size_t dash = range.find('-');
    uint64_t first = std::stoull(range.substr(6, dash - 6)), last = std::stoull(range.substr(dash + 1));
    last = std::min<uint64_t>(last, bytes_.size() - 1);
    if (fault == Fault::replaced || fault == Fault::replaced_without_412) replace();
    if (fault == Fault::removed) removed_ = true;
    switch (fault) {
      case Fault::refused: return cut(std::move(out), Cut::unreachable);
      case Fault::crowded: return cut(std::move(out), Cut::crowded);
      case Fault::cut_at_once: return cut(std::move(out), Cut::broken);
      case Fault::silence: now += 20000; return cut(std::move(out), Cut::stalled);
      case Fault::error_500: return refusal(std::move(out), 500, "InternalError");
      case Fault::slow_down_503: return refusal(std::move(out), 503, "SlowDown");
      case Fault::busy_503:
        out.head.fields.emplace_back("retry-after", text(again_in));
        return refusal(std::move(out), 503, "SlowDown");
      case Fault::too_many_429:
        out.head.fields.emplace_back("ratelimit", text("\"api\";r=9;t=300, \"resolvers\";r=0;t=", again_in));
        return refusal(std::move(out), 429, "TooManyRequests");
      case Fault::forbidden: return refusal(std::move(out), 403, "AccessDenied");
      case Fault::expired: return refusal(std::move(out), 400, "ExpiredToken");
      default: break;
    }
    if (removed_) return refusal(std::move(out), 404, "NoSuchKey");
    const std::string wanted = field(request, "if-match");
    if (!wanted.empty() && wanted != etag_ && fault != Fault::replaced_without_412)
      return refusal(std::move(out), 412, "PreconditionFailed");
    if (fault == Fault::wrong_range && first > 0) --first, --last;
    if (fault == Fault::wrong_range && first == 0 && last > 0) --last;
    out.head.code = 206;
    auto &fields = out.head.fields;
    uint64_t size = bytes_.size();
    if (fault == Fault::lying_range) ++size;
    if (fault == Fault::whole)
      first = 0, last = size - 1, out.head.code = 200;
    else
      fields.emplace_back("content-range", text("bytes ", first, "-", last, "/", size));
    if (fault == Fault::encoded) fields.emplace_back("content-encoding", "gzip");
    if (fault == Fault::wrong_etag)
      fields.emplace_back("etag", "\"other\"");
    else if (fault != Fault::no_etag)
      fields.emplace_back("etag", etag_);
    if (tells_checksum) fields.emplace_back("x-goog-hash", "crc32c=" + checksum_);
    fields.insert(fields.end(), also.begin(), also.end());
    uint64_t n = last - first + 1;
    fields.emplace_back("content-length", text(n));
    if (fault == Fault::short_body) n /= 2;
    if (fault == Fault::cut_half) n /= 2;
    out.fitted = request.fits(out.head);
    if (out.fitted) {
      out.received = std::min(n, request.room);
      std::memcpy(request.into, bytes_.data() + first, out.received);
      if (fault == Fault::flipped) request.into[out.received / 2] ^= std::byte{4};
      if (request.comes && out.received > told) request.comes({request.into + told, out.received - told});
      out.too_long = fault == Fault::too_long || n > request.room;
    }
    return fault == Fault::cut_half ? cut(std::move(out), Cut::broken) : out;
  }

  Answer head(const Request &request, uint64_t id) {
    ++heads;
    EXPECT_EQ(field(request, "if-match"), etag_);
    Answer out;
    out.id = id;
    if (head_code == 0) return cut(std::move(out), Cut::stalled);
    out.head = {head_code, {{"etag", etag_}, {"x-amz-checksum-crc32c", checksum_}}};
    return out;
  }

  // The bytes that a request of a slow answer has by now, of which `told` came before.
  uint64_t half(const Request &request, uint64_t told) const {
    const std::string range = field(request, "range");
    const uint64_t n = request.room / 2;
    std::memcpy(request.into, bytes_.data() + std::stoull(range.substr(6)), n);
    if (request.comes && n > told) request.comes({request.into + told, n - told});
    return n;
  }

  static Answer cut(Answer out, Cut how) {
    out.cut = how;
    out.why = "it was cut";
    return out;
  }

  static std::string field(const Request &request, std::string_view name) {
    for (const std::string &f : request.fields)
      if (f.starts_with(std::string(name) + ": ")) return f.substr(name.size() + 2);
    return {};
  }

 private:
  void replace() {
    etag_ = "\"second\"";
    for (std::byte &b : bytes_) b = ~b;
  }
  static Answer refusal(Answer out, int code, const char *name) {
    out.head.code = code;
    out.head.fields.emplace_back("x-amz-request-id", "R17");
    out.text = text("<?xml version=\"1.0\"?><Error><Code>", name, "</Code><Message>said so</Message></Error>");
    return out;
  }

  static std::string base64(uint64_t crc32) {
    unsigned char raw[4], out[9];
    for (int i = 0; i < 4; ++i) raw[i] = static_cast<unsigned char>(crc32 >> (24 - 8 * i));
    EVP_EncodeBlock(out, raw, 4);
    return reinterpret_cast<char *>(out);
  }

  std::vector<std::byte> bytes_;
  std::string etag_ = "\"first\"", checksum_;
  bool removed_ = false;
};

class SimulatedTransport : public Transport {
 public:
  // `pick` chooses which of n requests is answered next.
  explicit SimulatedTransport(
      SimulatedStore &store, std::function<size_t(size_t n)> pick = [](size_t) { return 0; })
      : store_(store), pick_(std::move(pick)) {}
  ~SimulatedTransport() override { disconnect(connected_); }
  SimulatedTransport(const SimulatedTransport &) = delete;
  SimulatedTransport &operator=(const SimulatedTransport &) = delete;

  void get(uint64_t id, Request request) override {
    for (const Flying &other : flying_)
      EXPECT_TRUE(store_.in_any_place || request.into + request.room <= other.request.into ||
                  other.request.into + other.request.room <= request.into)
          << "two requests write to one place";
    const bool late = store_.late_every > 0 && ++store_.sent % store_.late_every == 0;
    const bool is_head = request.method == "HEAD";
    const uint64_t takes = is_head ? store_.head_takes : store_.takes;
    store_.heads_sent += is_head;
    const bool crowded = !connect();
    flying_.push_back({id, std::move(request), store_.now + (crowded ? 0 : late ? 10000 : takes), late, crowded});
    store_.most_flying = std::max<uint64_t>(store_.most_flying, flying_.size());
  }
  uint64_t received(uint64_t id) const override {
    const auto found = at(id);
    return found->late ? found->told = store_.half(found->request, found->told) : 0;
  }
  void drop(uint64_t id) override {
    const auto found = at(id);
    if (!found->crowded) disconnect(1);
    flying_.erase(found);
    ++store_.dropped;
  }
  void drop_all() override {
    while (!flying_.empty()) {
      if (!flying_.front().crowded) disconnect(1);
      flying_.pop_front();
    }
  }
  std::optional<Answer> next(uint64_t wait_ms) override {
    uint64_t first = UINT64_MAX;
    for (const Flying &one : flying_) first = std::min(first, one.due);
    if (first > store_.now + wait_ms) {  // also where nothing was sent
      store_.now += wait_ms;
      return std::nullopt;
    }
    if (store_.slow > 0 && store_.requests > 0) {
      --store_.slow;
      store_.came += store_.part;
      store_.now += wait_ms;
      return std::nullopt;
    }
    store_.now = std::max(store_.now, first);
    std::vector<size_t> due;
    for (size_t i = 0; i < flying_.size(); ++i)
      if (flying_[i].due <= store_.now) due.push_back(i);
    const auto chosen = flying_.begin() + static_cast<std::ptrdiff_t>(due[pick_(due.size())]);
    const Flying one = std::move(*chosen);
    flying_.erase(chosen);
    if (one.crowded) return SimulatedStore::cut({.id = one.id}, Cut::crowded);
    return store_.answer(one.request, one.id, one.told);
  }
  uint64_t came() const override { return store_.came; }
  uint64_t now_ms() override { return store_.now; }
  int64_t unix_time() override { return 1369353600 + static_cast<int64_t>(store_.now / 1000); }
  uint32_t random() override { return static_cast<uint32_t>(store_.requests * 2654435761u); }

 private:
  struct Flying {
    uint64_t id;
    Request request;
    uint64_t due;
    bool late, crowded;
    mutable uint64_t told = 0;
  };
  bool connect() {
    const auto busy = std::count_if(flying_.begin(), flying_.end(), [](const Flying &one) { return !one.crowded; });
    if (static_cast<uint64_t>(busy) < connected_) return true;
    if (store_.connected == store_.descriptors) return false;
    ++connected_;
    ++store_.connected;
    return true;
  }
  void disconnect(uint64_t n) {
    connected_ -= n;
    store_.connected -= n;
  }
  std::deque<Flying>::const_iterator at(uint64_t id) const {
    return std::find_if(flying_.begin(), flying_.end(), [&](const Flying &one) { return one.id == id; });
  }

  SimulatedStore &store_;
  std::function<size_t(size_t)> pick_;
  std::deque<Flying> flying_;
  uint64_t connected_ = 0;
};

}  // namespace st::remote
