#!/usr/bin/env bash
# Benchmarks against stock safetensors, in a build of their own: release, without the assertions of the tests' build.
#   bash tests/bench/run.sh [--quick] [NAME...]     only these: run many commits transactions journals local distance remote layout
#                                                   deltas bindings loads stock_benches two_hosts scaling latency; the last
#                                                   three run only if named: one mounts GlusterFS, two draw curves
BUILD=${BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build-bench}
MESON_OPTIONS=(--buildtype=release -Dtests=false -Dbench=true -Dcli=false)
# shellcheck disable=SC2034
PEERS=(liblmdb-dev libsqlite3-dev) # of commits; the set-up installs them
export RIG_GCFLAGS= # object stores and their mounts as their users have them
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"
export PYTHONPATH=$ROOT/tests/bench:$ROOT/tests/demo:$ROOT/tests/remote:$ROOT/tests/storage:$ROOT/tests/python:$PYTHONPATH

QUICK=()
PARTS=()
for argument; do [[ $argument == --quick ]] && QUICK=(--quick) || PARTS+=("$argument"); done
((${#PARTS[@]})) || PARTS=(run many commits transactions journals local distance remote layout deltas bindings loads stock_benches)

# It asks for PyTorch, but what is measured does without.
[[ " ${PARTS[*]} " != *" distance "* ]] || "$PYTHON" -c 'import cattensors' 2>/dev/null ||
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps cattensors==0.2.0
# Peers of loads, which ask for a newer PyTorch than is here, but do with it; and what stock's benchmarks need.
[[ " ${PARTS[*]} " != *" loads "* && " ${PARTS[*]} " != *" stock_benches "* || -d $CACHE/peers ]] ||
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$CACHE/peers" \
    runai-model-streamer==0.17.0 humanize==4.13.0 fastsafetensors==0.5.0 \
    pytest-benchmark==5.2.3 py-cpuinfo==9.0.0 || echo "Peers of loads could not be had: they are left out."
[[ " ${PARTS[*]} " != *" remote "* || -d $CACHE/peers-remote ]] ||
  { "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$CACHE/peers-remote" \
    obstore==0.12.1 runai-model-streamer==0.17.0 runai-model-streamer-s3==0.17.0 humanize==4.13.0 &&
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --target "$CACHE/peers-remote" boto3==1.44.8; } ||
  echo "Peers of remote could not be had: they are left out."
[[ " ${PARTS[*]} " != *" bindings "* ]] || source "$ROOT/tests/bench/build_bindings.sh"
for part in "${PARTS[@]}"; do "$PYTHON" "$ROOT/tests/bench/$part.py" "$BUILD" "${QUICK[@]}"; done
