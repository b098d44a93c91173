#!/usr/bin/env bash
# What dist.sh makes, on systems that have nothing of libst.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
# With ST_DIST=all also what takes minutes: wheels for other systems, and long tests. Without it the Debian packages and the
# crates are hardly optimised, and debuggers get nothing: they are tried, and thrown away. Of the Python suite a bare root then
# runs the files that reach the library in every way.
set -euo pipefail
report=$(realpath "$1")
rm -f "$ROOT"/dist/*.{whl,tar.gz,crate,deb} # of other sources
what=()
[[ ${ST_DIST:-} == all ]] || { what=(sdist manylinux2014_x86_64 crates debian remote go); export DIST_CXXFLAGS="-O1 -g0"; }
FOR=dist-tests bash "$ROOT/tests/dist.sh" "${what[@]}"
PATH=$ROOT/build/dist/venv/bin:$PATH
status=0
run_pytest tests/dist "$report" || status=$?
[[ ! ${DIST_CXXFLAGS:-} ]] || rm -f "$ROOT"/dist/*.deb "$ROOT"/dist/libst_remote-*.whl
exit "$status"
