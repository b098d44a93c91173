// What programs in C++ need of the C ABI, beside st.h.
#pragma once

#include <st/st.h>

namespace st::testing {

// A struct that may grow, with all defaults.
template <class T>
T sized() {
  T all_zero = {};
  all_zero.struct_size = sizeof all_zero;
  return all_zero;
}

// And free the transaction, unless it may be committed again.
inline st_status commit(st_txn *txn) {
  const st_status status = st_txn_commit(txn);
  if (status != ST_E_BUSY) st_txn_free(txn);
  return status;
}

}  // namespace st::testing
