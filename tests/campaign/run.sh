#!/usr/bin/env bash
# The differential campaign: damaged headers, given to the stock reader (the crate `safetensors`) and to libst.
#   bash tests/campaign/run.sh [FILES [SEED]]     300,000 unless told; ten million: run.sh 10_000_000
#   bash tests/campaign/run.sh FILE               this one
# Files on which the two disagree are kept in build/results/campaign/. Wants a build tree (tests/setup.sh).
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
if ! command -v cargo >/dev/null; then
  echo "skipped: there is no cargo; install Rust 1.80 or newer"
  exit 77
fi
export LIBST_DIR=$BUILD LD_LIBRARY_PATH=$BUILD/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CARGO_TARGET_DIR=$BUILD/cargo CARGO_TERM_COLOR=never RUST_BACKTRACE=0
MANIFEST=$ROOT/tests/campaign/Cargo.toml
cargo fetch --locked --quiet --manifest-path "$MANIFEST" || echo "Crates could not be fetched; those that are here must do."
cargo fmt --check --manifest-path "$MANIFEST" || exit 1
cargo build --release --locked --offline --quiet --manifest-path "$MANIFEST" || exit 1
exec "$BUILD/cargo/release/campaign" "${1:-300_000}" "${2:-8}" "$BUILD/results/campaign"
