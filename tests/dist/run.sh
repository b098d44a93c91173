#!/usr/bin/env bash
# What dist.sh makes, on systems that have nothing of libst.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
set -euo pipefail
report=$(realpath "$1")
rm -f "$ROOT"/dist/libst-*-manylinux2014_x86_64.whl "$ROOT"/dist/{libst-*.crate,*.deb,libst-go-*.tar.gz} # of other sources
FOR=dist-tests bash "$ROOT/tests/dist.sh" manylinux2014_x86_64 crates debian go
run_pytest tests/dist "$report"
