#!/usr/bin/env bash
# Debian packages, beside those of State Threads: libst2, libst2-dev, stctl and python3-libst, into dist/.
#   bash tests/dist/debian.sh      from dist.sh
# Wants Debian, and what TO_PACK of tests/setup.sh lists.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v dpkg-buildpackage >/dev/null || { echo "This is no Debian: its packages are not made."; exit 0; }
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$ROOT/meson.build")
stage=$ROOT/build/dist/debian
source=$stage/libst-$version
bash "$ROOT/core/subprojects/fetch.sh"
meson subprojects download --sourcedir "$ROOT" >/dev/null

rm -rf "$stage"
mkdir -p "$source" "$ROOT/dist"
cd "$ROOT"
tar -cf - --exclude=./tests --exclude='./build*' --exclude=./dist --exclude=./.git --exclude=target --exclude=packagecache \
  --exclude=__pycache__ . | tar -xf - -C "$source"
cp -R tests/dist/debian "$source/debian"
printf 'libst (%s-1) unstable; urgency=medium\n\n  * CHANGELOG.md tells what is new.\n\n -- %s  %s\n' "$version" \
  "$(sed -n 's/^Maintainer: //p' tests/dist/debian/control)" "$(date -u -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")" \
  >"$source/debian/changelog"

# The system's meson, as a package is built; several processors.
cd "$source"
[[ ! -x /usr/lib/ccache/g++ ]] || export PATH=/usr/lib/ccache:$PATH CCACHE_DIR=${CCACHE_DIR:-$ROOT/build/cache/ccache}
PATH=${PATH//"$ROOT/build/dist/venv/bin:"/} CC=${DIST_CC:-gcc} CXX=${DIST_CXX:-g++} DEB_CXXFLAGS_APPEND=${DIST_CXXFLAGS:-} \
  DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" \
  dpkg-buildpackage --build=binary --no-sign --no-pre-clean >"$stage/build.log" 2>&1 || { cat "$stage/build.log"; exit 1; }
rm -f "$ROOT"/dist/*.deb
for made in "$stage"/*.deb; do
  mv "$made" "$ROOT/dist"
  echo "dist/${made##*/}"
done
