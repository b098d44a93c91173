#!/usr/bin/env bash
# Compile and link the programs of unit/ for macOS, in a cross build, and print their paths. tests/dist/run.sh has set up what
# that takes.
set -euo pipefail
source "$ROOT/tests/trees.sh"
bash "$ROOT/core/subprojects/fetch.sh" gtest
tree=$BUILD/dist/macos-tests
cd "$BUILD" # zig leaves an a.o where it is asked what it is
configure "$tree" --cross-file "$ROOT/core/platforms/macosx_11_0_arm64.ini" --wrap-mode=forcefallback -Doptimization=1 \
  -Dtests=true -Dcli=false -D{c,cpp}_args=-fno-sanitize=undefined # which zig adds below -O2
build "$tree" build.ninja # so that it lists what there is
mapfile -t programs < <(ninja -C "$tree" -t targets all | grep -oE '^tests/unit/unit_\w+')
build "$tree" "${programs[@]}"
printf "$tree/%s\n" "${programs[@]}"
