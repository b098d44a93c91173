#!/usr/bin/env bash
# The sources of libst with those of the libraries inside it, for builds that have a C++20 compiler and nothing else.
#   bash tests/dist/sources.sh FOLDER      makes FOLDER anew
# The libraries are those of core/subprojects; Meson compares their hashes. Wants what FOR=dist tests/setup.sh installs.
#   FOLDER/core, FOLDER/capi      as in the repository, sources and headers alone, without core/remote
#   FOLDER/include/st/st.h        the interface
#   FOLDER/inside                 simdjson.h, simdjson.cpp, xxhash.h, tl/expected.hpp
#   FOLDER/NOTICES, LICENSE       their licenses, and that of libst
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
place=$(cd "$1" && pwd)
subprojects=$ROOT/core/subprojects

if command -v apt-get >/dev/null; then bash "$subprojects/fetch.sh" simdjson xxhash tl-expected; fi
meson subprojects download --sourcedir "$ROOT" simdjson xxhash tl-expected >/dev/null
# of WRAP: the folder that Meson unpacked it to
of() { sed -n "s#^directory = #$subprojects/#p" "$subprojects/$1.wrap"; }

rm -rf "${place:?}"/*
mkdir -p "$place/include/st" "$place/inside/tl"
cp "$ROOT/capi/include/st/st.h" "$place/include/st"
(cd "$ROOT" && find core capi -path core/subprojects -prune -o -path core/remote -prune -o -path capi/examples -prune -o -path capi/include -prune \
  -o \( -name '*.cpp' -o -name '*.h' \) -print | sort | tar -cf - -T -) | tar -xf - -C "$place"
cp "$(of simdjson)"/singleheader/simdjson.{h,cpp} "$(of xxhash)/xxhash.h" "$place/inside"
cp "$(of tl-expected)/include/tl/expected.hpp" "$place/inside/tl"
cp "$subprojects/NOTICES" "$ROOT/LICENSE" "$place"
