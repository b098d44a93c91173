// May what was found on the disk be believed, and carried out? If not, a
// verdict says why.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace st::write {

class [[nodiscard]] Verdict {
 public:
  static Verdict good() { return {}; }
  static Verdict bad(std::string why) {
    Verdict verdict;
    verdict.why_ = std::move(why);
    return verdict;
  }
  bool is_good() const { return !why_; }
  const std::string &why() const { return *why_; }  // of a bad one

 private:
  std::optional<std::string> why_;
};

}  // namespace st::write
