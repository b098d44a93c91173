// A transaction without work is committed as others are: what is to be asked is asked.
#pragma once

#include <gtest/gtest.h>

#include "test_files.h"

namespace st::testing {

template <class Begin>  // answers a std::unique_ptr to a transaction
void expect_that_a_commit_of_nothing_asks(Begin begin) {
  auto t = begin();
  bool is_asked = false;
  t->at_last([&] { return is_asked = true, Result<void>(); });
  t->before_change([](auto) -> Result<void> { return fail(Status::delta_base, "it is another"); });
  EXPECT_TRUE(fails_with(Status::delta_base, t->commit()));
  EXPECT_FALSE(is_asked);
  t = begin();
  t->at_last([&] { return is_asked = true, Result<void>(); });
  EXPECT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(is_asked);
}

}  // namespace st::testing
