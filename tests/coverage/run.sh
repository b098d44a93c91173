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
programs=(
  unit/unit_{os,format,read,write,store,capi,capi_memory}
  crash/{failing_calls,save_crash,layout_crash,shards_crash,delta_crash,journal_gone,second_writer}
)
build "$tree" "${programs[@]/#/tests/}"
find "$tree" -name '*.gcda' -delete
# What objects that are no longer made had to count.
find "$tree" -name '*.gcno' | while read -r notes; do [[ -f ${notes%.gcno}.o ]] || rm "$notes"; done
ST_TEST_BOUND=small meson test -C "$tree" --no-rebuild --print-errorlogs --quiet \
  unit_{os,format,read,write,store,capi,capi_memory} 'failing calls' {save,layout,shards,delta}' crash' 'journal gone' 'second writer'

"$PYTHON" -m gcovr --root "$ROOT" --object-directory "$tree" "$tree/core" "$tree/capi" -j 2 \
  --filter "$ROOT/core/" --filter "$ROOT/capi/" \
  --exclude-throw-branches --exclude-unreachable-branches --exclude-branches-by-pattern '.*\bST_ASSERT\(' \
  --gcov-ignore-parse-errors=suspicious_hits.warn --json "$tree/coverage.json"
"$PYTHON" "$here/judge.py" "$tree/coverage.json" "$here/explained.txt"
