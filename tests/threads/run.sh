#!/usr/bin/env bash
# Races between threads, by ThreadSanitizer, in a build tree of its own with the programs that have threads.
#   run.sh          with $BUILD, and configure and build of tests/setup.sh, as tests/run.sh has them
# Left out are programs with one thread (unit_format, unit_journal and others, all of crash/), and such tests of the others, as far
# as they take seconds: tests/unit/meson.build names their files (`of_one_thread`; in fencing, one of two threads goes on at a time).
# And tests that fork, as ThreadSanitizer follows no child of a process with threads.
set -euo pipefail
tree=$BUILD-tsan
configure "$tree" --buildtype=custom -Doptimization=1 -Ddebug=false -Dcpp_args=-g1 -Dc_args=-g1 -Dwerror=false \
  -Db_sanitize=thread -Db_lundef=false -Dtests=true -Dbench=false -Dcli=false
build "$tree" tests/unit/unit_{os,read,file,shards,engine,capi} tests/storm/encounters
rm -f "$tree"/*.xml "$tree"/meson-logs/testlog.{junit.xml,json} # of an earlier run

forks='*Fork*:*Process*:*Child*:*Killed*'
one_thread='LargeTransaction.*:CapiOptions.*'
TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 ST_TEST_BOUND=${ST_TEST_BOUND:-small} GTEST_FILTER="-$forks:$one_thread" \
  meson test -C "$tree" --no-rebuild --print-errorlogs --quiet --timeout-multiplier 8 \
  unit_os unit_read unit_file unit_shards unit_engine unit_capi encounters
