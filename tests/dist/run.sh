#!/usr/bin/env bash
# What dist.sh makes, on systems that have nothing of libst.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
# With ST_DIST=all also the tests that take minutes.
set -euo pipefail
report=$(realpath "$1")
rm -f "$ROOT"/dist/*.{whl,tar.gz,crate,deb} # of other sources
FOR=dist-tests bash "$ROOT/tests/dist.sh"
PATH=$ROOT/build/dist/venv/bin:$PATH
run_pytest tests/dist "$report"
