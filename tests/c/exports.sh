#!/bin/sh
# What libst.so.2 exports is what st.map lists, which is made of st.h, and nothing
# else; all of it under a version; and lifecycle.c calls each. Speaks TAP.
#   exports.sh CC LIBRARY CAPI-DIRECTORY LIFECYCLE.c
cc=$1 library=$2 capi=$3 lifecycle=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n=0
same() { # same NAME FILE FILE
  n=$((n + 1))
  if [ -s "$2" ] && diff "$2" "$3" >"$work/diff"; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$work/diff"; fi
}
none() { # none NAME FILE
  n=$((n + 1))
  if [ -s "$2" ]; then echo "not ok $n - $1"; sed 's/^/# /' "$2"; else echo "ok $n - $1"; fi
}

grep -oE '^ +st_[a-z0-9_]+;' "$capi/st.map" | tr -d ' ;' | sort -u >"$work/mapped"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u >"$work/versioned"
sed 's/@.*//' "$work/versioned" | sort -u >"$work/exported"
grep -v '^st_.*@@ST_2\.[0-9]*$' "$work/versioned" >"$work/odd"
nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"' >"$work/no_functions"
$cc -E -P -I"$capi/include" "$lifecycle" | sed '1,/int failures/d' | grep -oE '\bst_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u >"$work/called"

# What a paragraph declares it documents; and since when it is there, if not from the beginning (2.0).
awk 'BEGIN { RS = ""; ORS = "\n\n" } !/\/\*/' "$capi/include/st/st.h" |
  $cc -fpreprocessed -E -P -x c - 2>/dev/null | grep -v '^ *typedef' | grep -oE '\bst_[a-z0-9_]+ *\(' | tr -d ' (' >"$work/undocumented"
sed -nE 's/^(st_.*)@@ST_(2\.[1-9][0-9]*)$/\1 \2/p' "$work/versioned" | while read -r function version; do
  awk -v declared="(^|\n)[a-z][a-z0-9_ ]*[ *]$function\\\\(" -v since="Since $version" \
    'BEGIN { RS = "" } $0 ~ declared && !index($0, since) { print since }' "$capi/include/st/st.h" | sed "s/^/$function: /"
done >"$work/dateless"

same "exports are what st.map lists" "$work/mapped" "$work/exported"
none "every function is documented" "$work/undocumented"
none "every function that came later says since when" "$work/dateless"
none "every export is an st_ function of a version" "$work/odd"
none "no variables are exported" "$work/no_functions"
same "lifecycle.c calls every function" "$work/mapped" "$work/called"

readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p' >"$work/soname"
echo libst.so.2 >"$work/wanted_soname"
same "the soname is libst.so.2" "$work/soname" "$work/wanted_soname"

# Another libst of the process, of another version, would answer.
readelf -rW "$library" | grep -E ' st_[a-z0-9_]+@' >"$work/borrowed"
none "it calls its own functions" "$work/borrowed"

# An executable stack, or text that must be relocated, is a sign of a bad build.
{ readelf -lW "$library" | awk '/GNU_STACK/ && /E/ && $7 ~ /E/'; readelf -d "$library" | grep TEXTREL; } >"$work/bad"
none "no executable stack and no text relocations" "$work/bad"
echo "1..$n"
