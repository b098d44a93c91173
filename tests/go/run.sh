#!/usr/bin/env bash
# The Go binding: vetted, staticcheck's opinion, and its tests under the race detector, against libst as
# `meson install` lays it out, on the real model.
#   run.sh JUNIT-XML      from tests/run.sh, or after sourcing tests/setup.sh
set -uo pipefail
source "$ROOT/tests/trees.sh"
prefix=$BUILD/prefix
wheel=$CACHE/silero_vad-6.2.3-py3-none-any.whl
model=$BUILD/model/silero_vad-6.2.3
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
here=$ROOT/tests/go

if ! bin=$(bash "$here/toolchain.sh"); then
  echo "No Go that can build the binding"
  echo '<testsuite><testcase name="go test"><skipped/></testcase></testsuite>' >"$1"
  exit 77
fi
report=$(realpath "$1")
export PATH=$bin:$PATH GOTOOLCHAIN=local

rm -rf "$prefix"
meson install -C "$BUILD" --no-rebuild --quiet --destdir "$prefix" || exit 1
pc=$(find "$prefix" -name libst.pc)
export PKG_CONFIG_PATH=${pc%/*}
LD_LIBRARY_PATH=$(pkg-config --variable=libdir libst)
export LD_LIBRARY_PATH

[[ -f $wheel ]] || "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$CACHE" silero-vad==6.2.3 || exit 1
unpack_once "$wheel" "$model" || exit 1
export LIBST_TEST_MODEL=$model/silero_vad/data/silero_vad_16k.safetensors LIBST_TEST_PYTHON=$PYTHON

cd "$ROOT/bindings/go" || exit 1
status=0
go vet ./... || status=1
go run "$staticcheck" ./... || status=1
go test -count=1 -race -timeout=20m -json ./... | "$PYTHON" "$here/junit.py" "$report" || status=1
exit $status
