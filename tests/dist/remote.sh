#!/usr/bin/env bash
# The wheel of libst-remote, for glibc 2.36 or later on x86-64: what reads URLs, beside the wheel of libst.
#   bash tests/dist/remote.sh      from dist.sh, after the Debian packages
# The library is that of the Debian package. auditwheel adds Debian's libcurl and OpenSSL, and what these need, under names
# that no other library has.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ROOT/meson.build")
platform=manylinux_2_36_x86_64
package=$(echo "$ROOT"/dist/libst-remote2_*_amd64.deb)
[[ -f $package ]] || { echo "There is no Debian package libst-remote2 for x86-64 here: its wheel is not made."; exit 0; }
stage=$ROOT/build/dist/remote
tree=$stage/libst_remote
info=$tree/libst_remote-$version.dist-info
rm -rf "$stage"
mkdir -p "$tree/libst" "$info/licenses"
dpkg-deb --extract "$package" "$stage/package"
cp "$stage"/package/usr/lib/*/libst-remote.so.2 "$tree/libst/" # what the link leads to

printf '%s\n' "Metadata-Version: 2.1" "Name: libst-remote" "Version: $version" \
  "Summary: What libst reads s3, gs, az, hf and https URLs with" "License: Apache-2.0" "Requires-Python: >=3.9" \
  "Requires-Dist: libst (==$version)" "Classifier: Operating System :: POSIX :: Linux" >"$info/METADATA"
printf '%s\n' "Wheel-Version: 1.0" "Generator: libst" "Root-Is-Purelib: false" "Tag: py3-none-linux_x86_64" >"$info/WHEEL"
cp "$ROOT/LICENSE" "$info/licenses"
# The licenses of what is added: Debian's, by package.
ldd "$tree/libst/libst-remote.so.2" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | xargs -n 1 realpath | sed 's,^/lib/,/usr/lib/,' |
  while read -r library; do dpkg-query --search "$library" || dpkg-query --search "${library#/usr}"; done 2>/dev/null |
  sed 's/:.*//' | sort -u | while read -r name; do cp "/usr/share/doc/$name/copyright" "$info/licenses/$name"; done

python3 -m wheel pack "$tree" --dest-dir "$stage" >/dev/null
auditwheel repair --plat "$platform" --only-plat --wheel-dir "$stage/repaired" "$stage"/*.whl >"$stage/log" 2>&1 || { cat "$stage/log"; exit 1; }
rm -f "$ROOT"/dist/libst_remote-*.whl
mv "$stage"/repaired/*.whl "$ROOT/dist"
for made in "$ROOT"/dist/libst_remote-*.whl; do echo "dist/${made##*/}"; done
