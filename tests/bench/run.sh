#!/usr/bin/env bash
# Benchmarks against stock safetensors, in a build of their own: release, without the assertions of the tests' build.
#   bash tests/bench/run.sh [--quick]
BUILD=${BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build-bench}
MESON_OPTIONS=(--buildtype=release -Dtests=false -Dbench=true -Dcli=false)
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"
"$PYTHON" "$ROOT/tests/bench/run.py" "$BUILD" "$@"
"$PYTHON" "$ROOT/tests/bench/transactions.py" "$BUILD" "$@"
"$PYTHON" "$ROOT/tests/bench/layout.py" "$BUILD" "$@"
