#!/usr/bin/env bash
# What dist.sh makes, on systems that have nothing of libst.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
# With ST_DIST=all also the tests that take minutes. Without it the Debian packages and the crates are hardly optimised: they
# are tried, and thrown away; and of the Python suite a bare root runs the files that reach the library in every way.
set -euo pipefail
report=$(realpath "$1")
rm -f "$ROOT"/dist/*.{whl,tar.gz,crate,deb} # of other sources
[[ ${ST_DIST:-} == all ]] || export DIST_CXXFLAGS=-O1
FOR=dist-tests bash "$ROOT/tests/dist.sh"
PATH=$ROOT/build/dist/venv/bin:$PATH
status=0
run_pytest tests/dist "$report" || status=$?
[[ ! ${DIST_CXXFLAGS:-} ]] || rm -f "$ROOT"/dist/*.deb
exit "$status"
