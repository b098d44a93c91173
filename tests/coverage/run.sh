#!/usr/bin/env bash
# Line and branch coverage of core and capi by the C++ suite, and the floors below which it must not fall: for the format
# and for the write path, whose every branch decides about somebody's bytes, and for all.
# Branches that only an exception takes (std::bad_alloc, which unit_capi_memory is for), its catch among them, and
# ST_ASSERTs do not count.
# What is left uncovered on purpose is listed, each with its reason, in explained.txt.
#   run.sh JUNIT-XML          with $BUILD, $PYTHON, and build of tests/setup.sh, as tests/run.sh has them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
counted=$BUILD/tests/coverage
report=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Only core and capi are compiled: the suite is linked with them as the plain build has it.
build "$BUILD" counted
find "$counted" -name '*.gcda' -delete
# What objects that are no longer made had to count.
find "$counted" -name '*.gcno' | while read -r notes; do [[ -f ${notes%.gcno}.o ]] || rm "$notes"; done

# check PROGRAM: says how it went, and what it said if it failed. The cluster runs in the stage of C++ tests, too: the branches
# that it alone takes, it takes at a small bound.
check() {
  local name=${1##*/} bound=usual
  [[ $name != cluster* ]] || bound=small
  if (cd "$work" && ST_TEST_BOUND=${ST_TEST_BOUND:-$bound} "$1" --gtest_brief=1 --gtest_output="xml:$work/$name.xml" \
    >"$work/$name.log" 2>&1 </dev/null); then
    echo "ok - $name"
  else
    echo "not ok - $name"
    tail -60 "$work/$name.log"
    return 1
  fi
}
export -f check
export work
status=0
ninja -C "$BUILD" -t query counted | sed -n 's/.* //;/_counted$/p' | sort -r | xargs -P "$(nproc)" -I{} bash -c 'check "$BUILD/{}"' || status=1
python3 "$here/../join_junit.py" "$report" "$work"/*.xml
((!status)) || exit 1

"$PYTHON" -m gcovr --root "$ROOT" --object-directory "$BUILD" "$counted" -j "$(nproc)" \
  --filter "$ROOT/core/" --filter "$ROOT/capi/" \
  --exclude-throw-branches --exclude-unreachable-branches --exclude-branches-by-pattern '.*\b(ST_ASSERT\(|catch \(const std::bad_alloc)' \
  --gcov-ignore-parse-errors=suspicious_hits.warn --json "$counted/coverage.json"
"$PYTHON" "$here/judge.py" "$counted/coverage.json" "$here/explained.txt"
