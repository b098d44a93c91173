#!/usr/bin/env bash
# The tree build-asan/: everything under ASan and UBSan, by clang, for the whole suite and for the fuzzers.
#   asan.sh [TARGET...]    builds these, or all
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/tests/trees.sh"
export CC='ccache clang-14' CXX='ccache clang++-14' CC_LD=lld CXX_LD=lld # which links in a quarter of the time
configure "$ROOT/build-asan" \
  --buildtype=custom -Doptimization=1 -Ddebug=false -Dcpp_args=-g1 -Dc_args=-g1 -Db_sanitize=address,undefined -Db_lundef=false \
  -Dtests=true -Dfuzz=true -Dcli=false
build "$ROOT/build-asan" "$@"
