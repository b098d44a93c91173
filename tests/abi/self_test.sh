#!/usr/bin/env bash
# check.sh must go red when it should: tiny libraries, each changed in one way, against the record of the first.
# Speaks TAP.
#   self_test.sh CC
cc=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v abidw >/dev/null || { echo "1..0 # SKIP abidw is not installed (Debian: abigail-tools)"; exit 0; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# make NAME SED-SCRIPT: the library, changed by a script, in a folder of its own.
make() {
  mkdir -p "$work/$1/st" "$work/$1/record"
  cat >"$work/$1/st/st.h" <<'HEADER'
#include <stdint.h>
#define ST_OK 0
#define ST_E_BUSY 11 /* try again */
typedef struct st_file st_file;
typedef struct st_range { int64_t start, stop; } st_range;
typedef struct st_stats { uint32_t struct_size; uint32_t commits; } st_stats;
int32_t st_open(const char *path, st_file **out);
int32_t st_slice(st_file *file, const st_range *range);
int32_t st_get_stats(const st_file *file, st_stats *out);
HEADER
  cat >"$work/$1/st.c" <<'SOURCE'
#include "st/st.h"
struct st_file { int hidden; };
int32_t st_open(const char *path, st_file **out) { *out = 0; return path != 0; }
int32_t st_slice(st_file *file, const st_range *range) { return file != 0 && range->start < range->stop; }
int32_t st_get_stats(const st_file *file, st_stats *out) { out->commits = 0; return file != 0; }
SOURCE
  sed -i -E "$2" "$work/$1/st/st.h" "$work/$1/st.c"
  $cc -g -shared -fPIC -Wl,-soname,libst.so.2 -o "$work/$1/libst.so" "$work/$1/st.c" || exit 1
}

n=0
# expect STATUS NAME SED-SCRIPT [TEXT]: check.sh answers this of the changed library, and prints the text.
expect() {
  n=$((n + 1))
  make "$n" "$3"
  output=$(bash "$here/check.sh" "$work/$n/libst.so" "$work/$n" "$work/first/record" 2>&1)
  status=$?
  if [[ $status == "$1" && $output == *"${4:-}"* ]]; then echo "ok $n - $2"; else printf 'not ok %s - %s\n# exit status %s\n%s\n' "$n" "$2" "$status" "${output//^/# }"; fi
}

make first ''
bash "$here/record.sh" "$work/first/libst.so" "$work/first" "$work/first/record" || exit 1

expect 0 "the same library passes" '' "is the recorded one"
expect 0 "what is behind an opaque type is nobody's business" 's/int hidden;/long hidden[7];/'
expect 0 "an added function passes and is told" '$aint32_t st_new(void);' "is the recorded one"
expect 0 "an added constant passes and is told" 's/^#define ST_OK 0/&\n#define ST_E_NEW 12/' "added: ST_E_NEW"
expect 0 "a result struct may grow at its end" 's/(uint32_t commits;)/\1 uint64_t recoveries;/'
expect 1 "a removed function is refused" '/st_slice/d' "st_slice"
expect 1 "a renamed function is refused" 's/st_slice/st_part/' "st_slice"
expect 1 "a parameter of another type is refused" 's/const char \*path, st_file/int path, st_file/; s/path != 0/path/' "st_open"
expect 1 "a parameter more is refused" 's/st_slice\(/st_slice(int more, /; s/\{ return file != 0 \&\&/{ return more \&\& file != 0 \&\&/' "st_slice"
expect 1 "another answer is refused" 's/^int32_t st_open/int64_t st_open/' "st_open"
expect 1 "a frozen struct may not grow" 's/int64_t start, stop;/int64_t start, stop, step;/' "st_range"
expect 1 "no struct may grow in the middle" 's/(uint32_t struct_size;) uint32_t commits;/\1 uint64_t first; uint32_t commits;/' "st_stats"
expect 1 "a field of another size is refused" 's/uint32_t commits;/uint64_t commits;/' "st_stats"
expect 1 "a renumbered constant is refused" 's/ST_E_BUSY 11/ST_E_BUSY 12/' "ST_E_BUSY 11"
expect 1 "a removed constant is refused" '/ST_E_BUSY/d' "ST_E_BUSY 11"
echo "1..$n"
