#!/usr/bin/env bash
# Stock's own tests, and programs on current torch, transformers, diffusers, accelerate and peft, by libst in the place of
# stock: `bash tests/suite/run.sh [PROGRAM...]`. 3 GB to fetch and 6 GB of disk, in build/suite, once; then 20 minutes.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SUITE=$ROOT/build/suite
PACKAGES=(torch transformers diffusers accelerate peft safetensors numpy ml_dtypes pytest)

if [[ ! -e $SUITE/.complete ]]; then
  printf 'Installing %s into build/suite\n' "${PACKAGES[*]}"
  python3 -m venv "$SUITE/venv"
  "$SUITE/venv/bin/pip" install -q --disable-pip-version-check "${PACKAGES[@]}"
  touch "$SUITE/.complete"
fi
if [[ -z ${LIBST_LIBRARY:-} ]]; then
  [[ -e $ROOT/build/build.ninja ]] || meson setup "$ROOT/build" "$ROOT" --buildtype=release >"$SUITE/setup.log"
  ninja -C "$ROOT/build" --quiet capi/libst.so.2.0.0
  export LIBST_LIBRARY=$ROOT/build/capi/libst.so.2.0.0
fi
PYTHONPATH=$ROOT/bindings/python:$ROOT/tests/python exec "$SUITE/venv/bin/python" "$ROOT/tests/suite/suite.py" "$@"
