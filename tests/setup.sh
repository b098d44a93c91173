#!/usr/bin/env bash
# Make this machine ready and build libst: packages, a virtual environment, build/.
# Run it, or source it from a script (then ROOT, BUILD, PYTHON, LIBST_LIBRARY, STCTL and PYTHONPATH are set).
# Does only what is missing: a second run takes a second or two. Another build tree, or other options for it:
#   BUILD=/somewhere bash tests/setup.sh              MESON_OPTIONS=(...) before sourcing it
# RIG=no leaves out gcsfuse and the object stores, which take two minutes to build the first time, and torch.
# FOR=demo is for demo.sh: no more than building libst and stctl takes, with whatever else a build tree has that is there.
# FOR=dist is for dist.sh: what makes packages, in a virtual environment of its own; it builds nothing. FOR=dist-tests brings
# bare systems and musl to try them on, too. FOR=emulated brings compilers for s390x, i686, armhf and aarch64, and qemu;
# FOR=windows one for Windows, and wine.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BUILD:-$ROOT/build}
VENV=$ROOT/build/venv
PYTHON=$VENV/bin/python
CACHE=$ROOT/build/cache # downloads, and what is built of them: a link, so that all clones of a user share them
SHARED=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/libst-tests
source "$ROOT/tests/trees.sh"

FOR=${FOR:-tests}
TO_BUILD=(g++ meson pkg-config libsimdjson-dev libxxhash-dev libexpected-dev libzstd-dev libcli11-dev libfmt-dev)
TO_PACK=(debhelper dh-python g++ libcurl4-openssl-dev libpugixml-dev libssl-dev libzstd-dev lintian meson) # Debian packages
TO_BUILD_TESTS=(
  ccache libgtest-dev libgmock-dev libbenchmark-dev libfuse3-dev libcurl4-openssl-dev libssl-dev libpugixml-dev
)
TO_TEST=(
  cmake unzip
  fuse3 xfsprogs btrfs-progs ntfs-3g exfat-fuse exfatprogs abigail-tools sshfs openssh-sftp-server rclone fio
  glusterfs-client moosefs-master moosefs-chunkserver moosefs-client iproute2
  ceph-common ceph-fuse ceph-mds ceph-mon ceph-osd
  clang-14 libclang-rt-14-dev lld-14 clang-format-14 clang-tidy-14 shellcheck man-db mandoc zsh fish valgrind libst1
  spin tcc nginx-light openssl
)
[[ ${ST_TEST_BOUND:-} != full ]] || TO_TEST+=(redis-server)
PACKAGES=("${TO_BUILD[@]}")
REQUIREMENTS=("$ROOT/tests/demo/requirements.txt")
if [[ $FOR == tests ]]; then
  PACKAGES+=("${TO_BUILD_TESTS[@]}")
  REQUIREMENTS+=("$ROOT/tests/requirements.txt")
  [[ ! -v PEERS ]] || PACKAGES+=("${PEERS[@]}") # bench/run.sh names them
  # Optimised as distributions do; benchmarks and wheels have one level more.
  [[ -v MESON_OPTIONS ]] || MESON_OPTIONS=(--buildtype=release -Doptimization=2 -Ddefault_library=both -Dpkgconfig.relocatable=true -Dtests=true -Dbench=true -Dcli=true -Dremote=enabled)
elif [[ $FOR == dist || $FOR == dist-tests ]]; then
  RIG=no
  VENV=$ROOT/build/dist/venv
  PYTHON=$VENV/bin/python
  PACKAGES=(git)
  ! command -v dpkg-query >/dev/null || PACKAGES+=("${TO_PACK[@]}")
  [[ $FOR == dist ]] || PACKAGES+=(debootstrap musl)
  [[ $FOR == dist-tests && ${ST_DIST:-} != all ]] || PACKAGES+=(g++-mingw-w64-x86-64-posix)
  [[ ${ST_DIST:-} != all ]] || PACKAGES+=(qemu-user-static libc6-arm64-cross)
  REQUIREMENTS=("$ROOT/tests/dist/requirements.txt")
elif [[ $FOR == emulated ]]; then
  PACKAGES=(meson ccache qemu-user-static g++-s390x-linux-gnu g++-i686-linux-gnu g++-arm-linux-gnueabihf
    g++-aarch64-linux-gnu)
elif [[ $FOR == windows ]]; then
  PACKAGES=(meson ccache g++-mingw-w64-x86-64-posix wine wine64)
else
  RIG=no
  MESON_OPTIONS=(--buildtype=release -Dwerror=false) # a reader may have any compiler
fi

say() { printf "%s\n" "$*"; }

# install_packages PACKAGE...
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "This is no Debian: have these installed, or what they are called here: $*"
    return
  fi
  local missing
  missing=$(comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort))
  [[ -z $missing ]] && return
  local sudo=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || { say "Missing: ${missing//$'\n'/ }. Install them as root, then run this again."; exit 1; }
    sudo=(sudo)
  fi
  say "Installing: ${missing//$'\n'/ }"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update
  # shellcheck disable=SC2086
  "${apt[@]}" install -y --no-install-recommends $missing >/dev/null
}

make_venv() {
  local stamp=$VENV/.requirements wanted now
  wanted=$(grep -hv '^#' "${REQUIREMENTS[@]}")
  now=$(grep -v '^#' "$stamp" 2>/dev/null || true)
  [[ $now == "$wanted"* ]] && "$PYTHON" -c '' 2>/dev/null && return
  say "Making ${VENV#"$ROOT/"}"
  rm -rf "$VENV"
  python3 -m venv "$VENV"
  # What is imported is compiled then: that is a small part of it.
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile "${REQUIREMENTS[@]/#/--requirement=}"
  printf '%s' "$wanted" >"$stamp"
}

# fetch FOLDER SCRIPT WHAT: without it, the tests that need it skip. Clones that are set up at once do so one after the other.
fetch() {
  flock "$CACHE/.$1.lock" env PYTHON="$PYTHON" CACHE="$CACHE" bash "$ROOT/tests/$1/$2.sh" || say "$3 could not be had: the tests that need it will skip, and say so."
}

fetch_what_tests_need() {
  [[ $FOR != tests ]] || install_packages "${TO_TEST[@]}"
  make_venv
  [[ ${RIG:-yes} == no ]] && return
  fetch python install_torch Torch &
  fetch storage install "The object-store rig" &
  fetch remote install Azurite &
  wait
}

mkdir -p "$BUILD"
[[ -e $CACHE ]] || { mkdir -p "$SHARED" && ln -sfn "$SHARED" "$CACHE"; }
python3 -c 'import ensurepip, venv' 2>/dev/null || PACKAGES+=(python3-venv)
install_packages "${PACKAGES[@]}"
if [[ $FOR == dist* || $FOR == emulated || $FOR == windows ]]; then
  [[ $FOR != dist* ]] || make_venv
  # shellcheck disable=SC2317
  return 0 2>/dev/null || exit 0
fi
fetch_what_tests_need & # most of it is waiting, beside the compiler
fetching=$!
[[ $FOR == demo && $(head -n 1 "$BUILD/.options" 2>/dev/null) == "$ROOT" ]] || configure "$BUILD" "${MESON_OPTIONS[@]}"
build "$BUILD"
wait "$fetching"

export LIBST_LIBRARY=$BUILD/capi/libst.so.2 STCTL=$BUILD/bindings/cli/stctl
export PYTHONPATH=$ROOT/bindings/python${PYTHONPATH:+:$PYTHONPATH}
