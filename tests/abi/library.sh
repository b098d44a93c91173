#!/usr/bin/env bash
# Builds libst.so.2 with debug information, from which abidw and abidiff know the types. Prints its path.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
if [[ -f $BUILD/build.ninja ]]; then
  source "$ROOT/tests/trees.sh"
else
  source "$ROOT/tests/setup.sh" >&2
fi
build "$BUILD" tests/abi/libst.so.2.0.0 >&2
printf '%s\n' "$BUILD/tests/abi/libst.so.2"
