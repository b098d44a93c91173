#!/usr/bin/env bash
# The Go module with libst in it: dist/libst-go-VERSION.tar.gz.
#   bash tests/dist/go.sh      from dist.sh, after the wheels
# The libraries are those of the wheels for glibc, which are in dist/: they need nothing but an old libc.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ROOT/meson.build")
name=libst-go-$version
stage=$ROOT/build/dist/$name
rm -rf "$stage"
mkdir -p "$stage/include/st" "$ROOT/dist"

cd "$ROOT/bindings/go"
cp -- *.go *.c *.h go.mod README.md "$stage"
rm "$stage"/*_test.go
# Here the library that lies in the folder is the one to take; -tags libst_system takes the system's.
sed -i 's/^\/\/go:build !libst_beside$/\/\/go:build libst_system/' "$stage/link_system.go"
sed -i 's/^\/\/go:build libst_beside$/\/\/go:build !libst_system/' "$stage/link_beside.go"
cp "$ROOT/capi/include/st/st.h" "$stage/include/st"
cp "$ROOT/LICENSE" "$ROOT/core/subprojects/NOTICES" "$stage"

found=
for machine in x86_64:amd64 aarch64:arm64; do
  wheel=("$ROOT/dist/libst-$version-py3-none-manylinux"*"_${machine%:*}.whl")
  [[ -f ${wheel[0]} ]] || continue
  folder=$stage/lib/linux_${machine#*:}
  mkdir -p "$folder"
  python3 -m zipfile -e "${wheel[0]}" "$stage/wheel"
  mv "$stage/wheel/libst/libst.so.2" "$folder"
  rm -r "$stage/wheel"
  found=yes
done
[[ $found ]] || { echo "dist/ has no wheel to take libst.so.2 from: bash tests/dist.sh manylinux2014_x86_64"; exit 1; }

tar -C "$ROOT/build/dist" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -czf "$ROOT/dist/$name.tar.gz" "$name"
echo "dist/$name.tar.gz"
