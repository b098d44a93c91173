#!/usr/bin/env bash
# Builds libst.so.2 with debug information, from which abidw and abidiff know the types. Prints its path.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${BUILD:-$ROOT/build}-abi
source "$ROOT/tests/trees.sh"
configure "$build" --buildtype=debug -Dtests=false -Dcli=false >&2
build "$build" capi/libst.so.2.0.0 >&2
printf '%s\n' "$build/capi/libst.so.2"
