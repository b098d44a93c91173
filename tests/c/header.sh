#!/bin/sh
# st.h by itself, in every language that includes it: no warning, no padding in
# any struct, nothing needed before it. Speaks TAP.
#   header.sh CC CXX INCLUDE-DIRECTORY
cc=$1 cxx=$2 include=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n=0
result() { # result STATUS NAME
  n=$((n + 1))
  if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/log"; fi
}

# program INITIALISER: every struct that may grow, zeroed, and what else a program spells at file scope.
program() {
  echo '#include <st/st.h>'
  grep -B 1 '^  uint32_t struct_size;' "$include/st/st.h" | sed -n "s/^typedef struct \(st_[a-z_]*\) {\$/\1 \1_zero = $1;/p"
  echo 'st_read_request q = { NULL, ST_NTS, 1, NULL, 0, NULL, 0, 0 };'
  echo 'st_range g = ST_RANGE_ALL;'
}
program '{ .struct_size = sizeof(\1) }' >"$work/c.c"
program '{}' >"$work/cxx.cpp"
strict="-Wall -Wextra -Wconversion -Wpadded -pedantic -Werror -fsyntax-only"

for std in c99 c11 c17; do
  # shellcheck disable=SC2086
  $cc -std=$std $strict -Wstrict-prototypes -I"$include" "$work/c.c" 2>"$work/log"
  result $? "st.h is clean $std without padding"
done
for std in c++11 c++14 c++17 c++20; do
  # shellcheck disable=SC2086
  $cxx -std=$std $strict -I"$include" "$work/cxx.cpp" 2>"$work/log"
  result $? "st.h is clean $std without padding"
done

# Included twice, and with C linkage in C++.
printf '#include <st/st.h>\n#include <st/st.h>\nextern "C" const char *st_version(void);\nint main() { return st_version() == nullptr; }\n' >"$work/twice.cpp"
$cxx -std=c++20 -Werror -fsyntax-only -I"$include" "$work/twice.cpp" 2>"$work/log"
result $? "st.h may be included twice and is C in C++"

# These checks can fail: a struct with a hole is refused.
mkdir "$work/st"
{ cat "$include/st/st.h"; echo 'typedef struct st_hole { char c; void *p; } st_hole;'; } >"$work/st/st.h"
# shellcheck disable=SC2086
! $cc -std=c99 $strict -I"$work" "$work/c.c" 2>"$work/log"
result $? "a struct with padding would be found"

# Only the two headers that it may include.
grep '^ *# *include' "$include/st/st.h" | grep -vE '<std(def|int)\.h>' >"$work/log"
[ ! -s "$work/log" ]
result $? "st.h includes only stddef.h and stdint.h"
echo "1..$n"
