#!/usr/bin/env bash
# What dist.sh makes, on systems that have nothing of libst.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
# With ST_DIST=all also what takes minutes: wheels for other systems, and long tests. Without it nothing is optimised,
# debuggers get nothing, and clang compiles what g++ would, which takes a third less: what has compiled code in it is tried, and
# thrown away. Of the Python suite a bare root then runs the files that reach the library in most ways.
set -euo pipefail
report=$(realpath "$1")
rm -f "$ROOT"/dist/*.{whl,tar.gz,crate,deb} # of other sources
what=()
if [[ ${ST_DIST:-} != all ]]; then
  what=(sdist manylinux2014_x86_64 crates debian remote go)
  export DIST_CXXFLAGS="-O0 -g0 -U_FORTIFY_SOURCE -fno-sanitize=undefined" # zig adds the last by itself where it optimises nothing
  ! command -v clang++-14 >/dev/null || export DIST_CC=clang-14 DIST_CXX=clang++-14
fi
FOR=dist-tests bash "$ROOT/tests/dist.sh" "${what[@]}"
PATH=$ROOT/build/dist/venv/bin:$PATH
status=0
run_pytest tests/dist "$report" || status=$?
[[ ! ${DIST_CXXFLAGS:-} ]] || rm -f "$ROOT"/dist/*.{deb,whl} "$ROOT"/dist/libst-go-*.tar.gz
exit "$status"
