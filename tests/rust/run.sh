#!/usr/bin/env bash
# The Rust crates: clippy, every test, the documentation; on a real model. Then, if there is a nightly
# toolchain, the tests again under AddressSanitizer, which also looks for leaks.
#   bash tests/rust/run.sh [--quick] [REPORT]     --quick: without AddressSanitizer; REPORT: JUnit XML
# Wants a build tree (tests/setup.sh). Fetches crates and the model once, and after that needs no network.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
PYTHON=${PYTHON:-$BUILD/venv/bin/python}
CACHE=$ROOT/build/cache
source "$ROOT/tests/trees.sh"
WHEEL=silero_vad-6.2.3-py3-none-any.whl
MODEL=$BUILD/model/silero_vad-6.2.3

QUICK=
[[ ${1:-} == --quick ]] && { QUICK=1; shift; }
REPORT=${1:-}
if ! command -v cargo >/dev/null; then
  echo "skipped: there is no cargo; install Rust 1.80 or newer"
  [[ -n $REPORT ]] && echo '<testsuite><testcase name="cargo test"><skipped/></testcase></testsuite>' >"$REPORT"
  exit 77
fi

export LIBST_DIR=$BUILD LD_LIBRARY_PATH=$BUILD/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CARGO_TARGET_DIR=$BUILD/cargo CARGO_TERM_COLOR=never RUST_BACKTRACE=0
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 # which cost time, and nobody reads
OUTPUT=$(mktemp)
trap 'rm -f "$OUTPUT"' EXIT
cd "$ROOT/bindings/rust" || exit 1

# check NAME COMMAND...: a case of its own, in the words of `cargo test`.
check() {
  local name=$1
  shift
  if "$@"; then echo "test $name ... ok"; else echo "test $name ... FAILED"; fi
}

fetch_model() {
  [[ -f $CACHE/$WHEEL ]] ||
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$CACHE" silero-vad==6.2.3 || return 1
  unpack_once "$CACHE/$WHEEL" "$MODEL"
}

write_corpus() {
  mkdir -p "$LIBST_TEST_CORPUS" && python3 "$ROOT/tests/differential/corpus.py" "$LIBST_TEST_CORPUS" >"$LIBST_TEST_CORPUS/cases"
}

document() {
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --offline --quiet --workspace --all-features --no-deps
}

# As those build it who have installed libst.
found_by_pkg_config() {
  env -u LIBST_DIR PKG_CONFIG_PATH="$BUILD/meson-uninstalled" CARGO_TARGET_DIR="$BUILD/cargo/pkg-config" \
    cargo build --locked --offline --quiet -p libst
}

# Nothing changed since.
is_built_once() {
  local said
  said=$(env -u LIBST_DIR PKG_CONFIG_PATH="$BUILD/meson-uninstalled" CARGO_TARGET_DIR="$BUILD/cargo/pkg-config" \
    cargo build --locked --offline --verbose -p libst 2>&1) && ! grep -E "Compiling|Dirty" <<<"$said"
}

# Without libst the build says what to do, in a sentence that Cargo prints.
says_when_it_is_missing() {
  local said
  said=$(env -u LIBST_DIR PKG_CONFIG_LIBDIR=/nonexistent CARGO_TARGET_DIR="$BUILD/cargo/pkg-config" \
    cargo build --locked --offline --quiet -p libst 2>&1) && return 1
  grep -q "libst-sys did not find libst.so.2: .*" <<<"$said" && grep -q "Install libst .* in LIBST_DIR" <<<"$said" &&
    ! LIBST_DIR=/nonexistent CARGO_TARGET_DIR="$BUILD/cargo/pkg-config" cargo build --locked --offline --quiet -p libst 2>/dev/null
}

refuses_a_relative_folder() {
  local said
  said=$(LIBST_DIR=. CARGO_TARGET_DIR="$BUILD/cargo/pkg-config" cargo build --locked --offline --quiet -p libst 2>&1) && return 1
  grep -q "LIBST_DIR must be absolute, and is \." <<<"$said"
}

# The version that Cargo.toml promises compiles the crates of Cargo.lock.
with_the_oldest() { # its Cargo has a place of its own for what it fetches
  CARGO_TARGET_DIR=$BUILD/cargo/oldest cargo "+$oldest" check --locked --quiet --workspace --all-targets --all-features
}

# Examples are not built here. And what a thread is told in its last moments nobody frees.
under_asan() {
  ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$BUILD/cargo-asan \
    cargo +nightly test --locked --offline --quiet -p libst --all-features --tests --no-fail-fast \
    --target x86_64-unknown-linux-gnu -- --skip list_read_and_update_run --skip a_file_may_be_used_when_its_thread_ends
}

all() {
  if fetch_model; then
    export LIBST_TEST_MODEL=$MODEL/silero_vad/data/silero_vad_16k.safetensors
  else
    echo "The real model could not be fetched; a generated file stands in for it."
  fi
  export LIBST_TEST_CORPUS=$BUILD/corpus
  check "the corpus is written" write_corpus
  cargo fetch --locked --quiet || echo "Crates could not be fetched; those that are here must do."
  check clippy cargo clippy --locked --offline --quiet --workspace --all-targets --all-features -- -D warnings
  check "clippy without features" cargo clippy --locked --offline --quiet --workspace --all-targets -- -D warnings
  check documentation document
  check "found by pkg-config" found_by_pkg_config
  check "built once" is_built_once
  check "missing libst is explained" says_when_it_is_missing
  check "a relative LIBST_DIR is refused" refuses_a_relative_folder
  oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1.0/p' Cargo.toml)
  if cargo "+$oldest" --version >/dev/null 2>&1; then
    check "Rust $oldest" with_the_oldest
  else
    echo "test Rust $oldest ... ignored, this toolchain is not here"
  fi
  check "cargo test" cargo test --locked --offline --workspace --all-features --no-fail-fast
  if [[ -n $QUICK ]]; then
    echo "test AddressSanitizer ... ignored, --quick was given"
  elif ! cargo +nightly --version >/dev/null 2>&1; then
    echo "test AddressSanitizer ... ignored, there is no nightly toolchain"
  else
    check AddressSanitizer under_asan
  fi
}

all 2>&1 | tee "$OUTPUT"
python3 "$ROOT/tests/cargo_junit.py" "$OUTPUT" "$REPORT"
