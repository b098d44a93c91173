#!/usr/bin/env bash
# Line and branch coverage of core and capi by the C++ suite, in a build of its own, and the floors below which it must
# not fall: for the format and for the write path, whose every branch decides about somebody's bytes, and for all.
# Branches that only an exception takes (std::bad_alloc, which unit_capi_memory is for) and ST_ASSERTs do not count.
# What is left uncovered on purpose is listed, each with its reason, in explained.txt.
#   run.sh          with $BUILD, $PYTHON, and configure and build of tests/setup.sh, as tests/run.sh has them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$BUILD-coverage

# No crash enumeration: failing_calls goes the same ways, and that is what counts here. Optimised a little, as nothing
# else lets the branches of C++ that nobody wrote vanish; not inlined, so that each is counted where it stands.
configure "$tree" --buildtype=custom -Doptimization=1 -Ddebug=false -Dcpp_args=-fno-inline -Dwerror=false \
  -Db_coverage=true -Db_lundef=false -Dtests=true -Dbench=false -Dcli=false
build "$tree"
find "$tree" -name '*.gcda' -delete
tests=$(meson test -C "$tree" --list 2>/dev/null | sed -n 's,^libst:[a-z]* / ,,p' |
  grep -E '^unit_|^(failing calls|(save|layout|shards|delta) crash|lifecycle in C99)$')
mapfile -t tests <<<"$tests"
ST_TEST_BOUND=small meson test -C "$tree" --no-rebuild --print-errorlogs --quiet "${tests[@]}"

"$PYTHON" -m gcovr --root "$ROOT" --object-directory "$tree" "$tree" -j 2 --filter "$ROOT/core/" --filter "$ROOT/capi/" \
  --exclude-throw-branches --exclude-unreachable-branches --exclude-branches-by-pattern '.*\bST_ASSERT\(' \
  --gcov-ignore-parse-errors=suspicious_hits.warn --json "$tree/coverage.json"
"$PYTHON" "$here/judge.py" "$tree/coverage.json" "$here/explained.txt"
