#!/usr/bin/env bash
# Records the ABI of libst as it is now: libst.abi (functions and types) and constants.txt. Run it when something was
# added on purpose, and commit the result; what check.sh refuses must not be recorded but undone.
#   record.sh [LIBRARY [HEADERS [OUTPUT-DIRECTORY]]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
library=${1:-$("$here/library.sh")}
headers=${2:-$here/../../capi/include}
out=${3:-$here}

# No paths: the record is the same on every machine. File names stay, as by them the public types are told.
abidw --headers-dir "$headers" --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path \
  --short-locs --no-elf-needed --no-architecture --no-parameter-names --out-file "$out/libst.abi" "$library"
python3 "$here/../../capi/generate.py" --constants "$headers/st/st.h" >"$out/constants.txt"
