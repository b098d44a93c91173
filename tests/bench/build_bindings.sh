#!/usr/bin/env bash
# Build the programs of bindings.py against $BUILD; run.sh sources it. A language that is not here is left out, and
# bindings.py says so.
export LIBST_DIR=$BUILD LD_LIBRARY_PATH=$BUILD/capi${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

if command -v cargo >/dev/null; then
  CARGO_TARGET_DIR=$BUILD/cargo cargo build --release --locked --quiet --manifest-path "$ROOT/tests/bench/rust/Cargo.toml"
  cp "$BUILD/cargo/release/bindings-bench" "$BUILD/tests/bench/bindings_bench_rust"
fi
if go=$(bash "$ROOT/tests/go/toolchain.sh"); then
  (cd "$ROOT/tests/bench/go" && PKG_CONFIG_PATH=$BUILD/meson-uninstalled GOTOOLCHAIN=local \
    "$go/go" build -o "$BUILD/tests/bench/bindings_bench_go" .)
fi
