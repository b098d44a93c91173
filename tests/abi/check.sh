#!/usr/bin/env bash
# Is the ABI still the recorded one? Additions are printed and fine; whatever a program built yesterday could trip over
# is an error. Exit status 0, 1, or 77 where abidiff is not installed.
#   check.sh [LIBRARY [HEADERS [RECORD-DIRECTORY]]]
# LIBRARY needs debug information; without one, it is built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v abidiff >/dev/null || { echo "skipped: abidiff is not installed (Debian: abigail-tools)"; exit 77; }
library=${1:-$("$here/library.sh")}
headers=${2:-$here/../../capi/include}
record=${3:-$here}
now=$(mktemp -d)
trap 'rm -rf "$now"' EXIT
failed=0
refuse() { # refuse TITLE: what follows on standard input is an error, unless it is empty
  local text
  text=$(cat)
  [[ -z $text ]] && return
  printf '%s\n%s\n' "$1" "$text"
  failed=1
}

# Record what is, and compare the records: so both have passed through the same tool.
"$here/record.sh" "$library" "$headers" "$now"
grep -q '<class-decl' "$now/libst.abi" || refuse "No types:" <<<"$library has no debug information"

if ! abidiff --no-added-syms --suppr "$here/grown.suppr" "$record/libst.abi" "$now/libst.abi" >"$now/changes" 2>&1; then
  refuse "Functions or types have changed:" <"$now/changes"
fi
python3 "$here/grown.py" "$record/libst.abi" "$now/libst.abi" >"$now/grown" || refuse "Structs have changed:" < <(grep -v ^added: "$now/grown")
refuse "Constants are gone or have another value:" < <(LC_ALL=C comm -23 "$record/constants.txt" "$now/constants.txt")

abidiff --suppr "$here/grown.suppr" "$record/libst.abi" "$now/libst.abi" 2>&1 | sed -n 's/^ *\[A\]/added:/p' || true
grep ^added: "$now/grown" || true
LC_ALL=C comm -13 "$record/constants.txt" "$now/constants.txt" | sed 's/^/added: /'
((failed)) || echo "The ABI is the recorded one."
exit $failed
