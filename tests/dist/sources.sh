#!/usr/bin/env bash
# The sources of libst with those of the libraries inside it, for builds that have a C++20 compiler and nothing else.
#   bash tests/dist/sources.sh FOLDER      makes FOLDER anew
# The libraries are those of core/subprojects; Meson compares their hashes. Wants what FOR=dist tests/setup.sh installs.
#   FOLDER/core, FOLDER/capi      as in the repository, sources and headers alone
#   FOLDER/include/st/st.h        the interface
#   FOLDER/inside                 simdjson.h, simdjson.cpp, xxhash.h, tl/expected.hpp, zstd
#   FOLDER/NOTICES, LICENSE       their licenses, and that of libst
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
place=$(cd "$1" && pwd)
subprojects=$ROOT/core/subprojects

if command -v apt-get >/dev/null; then bash "$subprojects/fetch.sh" simdjson xxhash tl-expected zstd; fi
meson subprojects download --sourcedir "$ROOT" simdjson xxhash tl-expected zstd >/dev/null
# of WRAP: the folder that Meson unpacked it to
of() { sed -n "s#^directory = #$subprojects/#p" "$subprojects/$1.wrap"; }

rm -rf "${place:?}"/*
mkdir -p "$place/include/st" "$place/inside/tl"
cp "$ROOT/capi/include/st/st.h" "$place/include/st"
(cd "$ROOT" && find core capi -path core/subprojects -prune -o -path capi/examples -prune -o -path capi/include -prune \
  -o \( -name '*.cpp' -o -name '*.h' \) -print | sort | tar -cf - -T -) | tar -xf - -C "$place"
cp "$(of simdjson)"/singleheader/simdjson.{h,cpp} "$(of xxhash)/xxhash.h" "$place/inside"
cp "$(of tl-expected)/include/tl/expected.hpp" "$place/inside/tl"
(cd "$(of zstd)/lib" && tar -cf - zstd.h zstd_errors.h {common,compress,decompress}/*.[ch]) | tar -xf - --one-top-level="$place/inside/zstd"
# A program may have another zstd: the names of this one get a prefix. They are C, so no namespace parts them.
find "$place/inside/zstd" "$place/core/delta/compression.cpp" -type f \
  -exec sed -Ei 's/\b((ZSTD|ZSTDMT|HUF|FSE|HIST|ERR|POOL)_|g_ZSTD|g_debug)/libst_\1/g' {} +
cp "$subprojects/NOTICES" "$ROOT/LICENSE" "$place"
