#!/usr/bin/env bash
# Builds libst.so.2 with debug information, from which abidw and abidiff know the types. Prints its path.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${BUILD:-$root/build}-abi
if [[ ! -f $build/build.ninja ]]; then
  mkdir -p "$build"
  meson setup "$build" "$root" --buildtype=debug -Dtests=false -Dcli=false >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
fi
ninja -C "$build" --quiet capi/libst.so.2.0.0 >&2
printf '%s\n' "$build/capi/libst.so.2"
