// What is no file: a caller's functions as a source.
#include "boundary.h"
#include "engine/open.h"

static_assert(sizeof(st_source_range) == sizeof(st::os::Source::Range) &&
                  offsetof(st_source_range, nbytes) == offsetof(st::os::Source::Range, nbytes) &&
                  offsetof(st_source_range, dst) == offsetof(st::os::Source::Range, to),
              "a list of one is a list of the other");

namespace st::capi {
namespace {

std::string shown_name(const st_source &given) {
  const std::string name = given.name ? given.name : "source";
  return given.identity ? text(name, " (version ", given.identity, ")") : name;
}

class CallersSource final : public os::Source {
 public:
  explicit CallersSource(const st_source &given)
      : Source(shown_name(given), given.size, given.most_reads), given_(given) {}
  ~CallersSource() override {
    if (taken_ && given_.close) given_.close(given_.user);
  }

  int read(std::span<const Range> ranges) override {
    const int answer =
        given_.read(given_.user, reinterpret_cast<const st_source_range *>(ranges.data()), ranges.size());
    // A negative number is no errno, and EINTR would be asked for again.
    return answer < 0 || answer == EINTR ? EIO : answer;
  }
  // From now on it is closed here.
  void take() { taken_ = true; }

 private:
  const st_source given_;
  bool taken_ = false;
};

}  // namespace
}  // namespace st::capi

using namespace st;
using namespace st::capi;

st_status st_open_source(const st_source *source, const st_open_options *opts, st_file **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_open_source", source, out));
    ST_TRY(const auto given, read_options(source));
    if (given.reserved0 != 0)
      return fail(Status::unsupported, "st_source.reserved0 is not zero, and libst ", st_version(),
                  " does not know what that means");
    if (!given.read)
      return fail(Status::invalid_argument, "st_source.read is NULL; it takes the function that reads the source");
    if (given.size > INT64_MAX)
      return fail(Status::invalid_argument, "st_source.size is ", given.size, "; it takes at most 2^63 - 1 bytes");
    ST_TRY(auto options, open_options_of(opts));
    auto callers = std::make_unique<CallersSource>(given);
    CallersSource &taken = *callers;
    const auto env = std::make_shared<os::SourceEnv>(std::move(callers));
    ST_TRY(hand_out(store::open_source(env, std::move(options)), out));
    taken.take();
    return {};
  });
}
