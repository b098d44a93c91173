#!/usr/bin/env bash
# Make what is handed to others, into dist/. A clone, Python and the network of a package mirror are enough.
#   bash tests/dist.sh            all of it
#   bash tests/dist.sh WHAT...    only these: sdist crates debian remote go, or wheels by their platform: win_amd64, or one of
#                                 core/platforms
# A wheel is compiled by clang of the PyPI package ziglang, for the oldest libc that its name promises, with all that libst
# needs inside. The compiler keeps its libc++ in ZIG_GLOBAL_CACHE_DIR (~/.cache/zig), which it fills once for each kind of
# wheel, in two minutes. core/platforms/ has a cross file for each; Debian's mingw-w64 makes the one for Windows. The source
# package is the last commit, and the sources of what libst is compiled with.
# tests/dist/run.sh sets DIST_CXXFLAGS, compiler flags after those of each, and DIST_CC and DIST_CXX, compilers for Debian's.
FOR=${FOR:-dist}
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
DIST=$ROOT/dist
PATH=$VENV/bin:$PATH
export PATH ZIG_LOCAL_CACHE_DIR=${ZIG_LOCAL_CACHE_DIR:-$ROOT/build/dist/zig}
unset CC CXX CFLAGS CXXFLAGS LDFLAGS AR
# The same sources make the same wheel: its times are those of the last commit.
SOURCE_DATE_EPOCH=$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
most_bytes=$((3 << 20))

# wheel PLATFORM
wheel() {
  local platform=$1 tree=$ROOT/build/dist/$1 cross=$1 flags=() made
  [[ $platform != win_amd64 ]] || cross=windows_x86_64
  [[ ! ${DIST_CXXFLAGS:-} ]] || flags=("-Csetup-args=-Dc_args=$DIST_CXXFLAGS" "-Csetup-args=-Dcpp_args=$DIST_CXXFLAGS")
  rm -rf "$tree.wheel"
  mkdir -p "$tree" "$tree.wheel"
  "$PYTHON" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir "$tree.wheel" "$ROOT" \
    -Cbuild-dir="$tree" -Ccompile-args=-j"$(nproc)" -Csetup-args=--cross-file="$ROOT/core/platforms/$cross.ini" "${flags[@]}"
  (cd "$tree.wheel" && "$PYTHON" -m wheel tags --remove --platform-tag "$platform" ./*.whl >/dev/null)
  made=("$tree.wheel"/*.whl)
  [[ $platform != musl* ]] || name_musl "${made[0]}" "${platform#musllinux_1_1_}"
  judge "${made[0]}" "$platform"
  rm -f "$DIST"/libst-*-"$platform.whl"
  mv "${made[0]}" "$DIST"
  say "dist/$(basename "${made[0]}")"
}

sdist() {
  local tree=$ROOT/build/dist/sdist made
  rm -rf "$tree"
  mkdir -p "$tree"
  # Its set-up asks for a compiler; this one is there.
  (cd "$ROOT" && "$PYTHON" -m build --sdist --no-isolation --outdir "$tree" \
    -Csetup-args=--cross-file="$ROOT/core/platforms/manylinux2014_x86_64.ini" >"$tree/log" 2>&1) || {
    cat "$tree/log"
    return 1
  }
  made=("$tree"/*.tar.gz)
  rm -f "$DIST"/libst-[0-9]*.tar.gz
  mv "${made[0]}" "$DIST"
  say "dist/$(basename "${made[0]}")"
}

# name_musl WHEEL MACHINE: libst wants musl's libc by the name that it has in wheels, libc.musl-MACHINE.so.1; zig links it as
# libc.so. musl's loader takes either name for itself.
name_musl() {
  local tree
  tree=$(mktemp -d)
  "$PYTHON" -m wheel unpack "$1" --dest "$tree" >/dev/null
  patchelf --replace-needed libc.so "libc.musl-$2.so.1" "$tree"/libst-*/libst/libst.so.2
  "$PYTHON" -m wheel pack "$tree"/libst-* --dest-dir "$(dirname "$1")" >/dev/null
  rm -r "$tree"
}

# judge WHEEL PLATFORM: is it for all the systems that its name promises, and small? Nothing in a library tells which musl it is
# for, and auditwheel names the last that it knows; tests/dist/test_musl.py looks further.
judge() {
  local said
  (($(stat -c %s "$1") <= most_bytes)) || { say "$1 is larger than $most_bytes bytes"; return 1; }
  # auditwheel knows none of these; tests/dist/test_windows_wheel.py and test_macos_wheels.py look.
  [[ $2 != win_amd64 && $2 != macosx* ]] || return 0
  said=$(auditwheel show "$1" 2>&1) || { say "$said"; return 1; }
  said=${said//manylinux_2_17_/manylinux2014_}
  grep -qE "\"$2\"" <<<"${said//musllinux_1_2_/musllinux_1_1_}" || {
    say "$1 is not for $2: $said"
    return 1
  }
}

mkdir -p "$DIST"
(($#)) || set -- sdist manylinux2014_x86_64 manylinux2014_aarch64 musllinux_1_1_x86_64 \
  musllinux_1_1_aarch64 macosx_11_0_arm64 macosx_11_0_x86_64 win_amd64 crates debian remote go
# Without apt Meson downloads the sources, as the wraps say.
if command -v apt-get >/dev/null; then bash "$ROOT/core/subprojects/fetch.sh" simdjson xxhash tl-expected zstd; fi
for what; do
  case $what in
    sdist) sdist ;;
    manylinux* | musllinux* | macosx* | win_amd64) wheel "$what" ;;
    crates | debian | remote | go) bash "$ROOT/tests/dist/$what.sh" ;;
    *) say "dist.sh does not make $what"; exit 2 ;;
  esac
done
