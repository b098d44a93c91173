// What a storm rages over. A scene has cells, each of which shows the version of
// the transaction that changed it last, however it stores that; the storm kills,
// and judges what the cells show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ledger.h"

namespace st::testing {

// How a judge comes to look; `lone` opens files of the scene by their own paths first.
enum class OpenAs { reader, writer, recoverer, lone };

class Scene {
 public:
  virtual ~Scene() = default;

  virtual const std::string &path() const = 0;  // what everybody opens
  virtual uint32_t cells() const = 0;
  // Sets of cells that only ever change together, so that half a transaction
  // shows however many others ran at the same time.
  virtual std::vector<uint32_t> groups() const = 0;
  // Files with every cell in version 0.
  virtual void make() const = 0;

  // Changes random cells in every way that st.h has, with every patience.
  [[noreturn]] virtual void write_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const = 0;
  // Opens and reads, and complains of states that are not promised to a reader without a lock.
  [[noreturn]] virtual void read_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const = 0;

  // When all writers are dead: opens, which recovers, and answers the version of
  // each cell. Complains of whatever is not as it is promised to be then.
  virtual std::vector<uint64_t> judge(Ledger &ledger, OpenAs how) const = 0;
  // Cleans up once, as st.h says it is to be done. What `wrong` was with that, and
  // the first thing that is `left` of dead writers; empty: nothing.
  struct Tidied {
    std::string wrong, left;
  };
  virtual Tidied tidy() const = 0;
};

// For a complaint.
inline std::string said(const std::string &call, st_status status) {
  return call + ": " + st_status_name(status) + ": " + st_last_error();
}

}  // namespace st::testing
