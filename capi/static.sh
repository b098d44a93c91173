#!/bin/sh
# One static library of several, in which only the names of st.map can be seen: another simdjson in the program is not taken
# for the one inside.
#   static.sh OUTPUT ST.MAP OBJCOPY AR COMPILER... -- LIBRARY...
set -e
output=$1 map=$2 objcopy=$3 ar=$4
shift 4
compiler=
while [ "$1" != -- ]; do
  compiler="$compiler $1"
  shift
done
shift
# Groups of sections that several objects may have are resolved here: outside, theirs might take the place of ours.
$compiler -r -nostdlib -o "$output.o" -Wl,--whole-archive "$@" -Wl,--no-whole-archive -Wl,--force-group-allocation
sed -n 's/^    \(st_[a-z0-9_]*\);$/\1/p' "$map" >"$output.names"
"$objcopy" --keep-global-symbols="$output.names" "$output.o"
rm -f "$output"
"$ar" rcs "$output" "$output.o"
rm "$output.o" "$output.names"
