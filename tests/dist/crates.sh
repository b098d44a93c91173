#!/usr/bin/env bash
# The crates, as they would be published: dist/libst-sys-VERSION.crate with all sources in it, dist/libst-VERSION.crate.
#   bash tests/dist/crates.sh      from dist.sh
# A clone has no copy of core below libst-sys: this puts one into a copy of the workspace, and packs that.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v cargo >/dev/null || { echo "There is no cargo here: the crates are not made."; exit 0; }
stage=$ROOT/build/dist/crates
export CARGO_TARGET_DIR=$ROOT/build/dist/cargo
mkdir -p "$stage" "$ROOT/dist"
rm -rf "$stage" "$CARGO_TARGET_DIR/package"
mkdir -p "$stage"
(cd "$ROOT/bindings/rust" && tar -chf - --exclude=target --exclude=bundled .) | tar -xf - -C "$stage"
bash "$ROOT/tests/dist/sources.sh" "$stage/libst-sys/bundled"
sed -i '/^publish = false/d' "$stage/Cargo.toml"
sed -i '/^publish.workspace = true/d' "$stage"/*/Cargo.toml

# Not compiled here: tests/dist/test_crates.py compiles what it unpacks. The dry run asks the registry what a publication asks.
cd "$stage"
cargo fetch --locked --quiet  # for what is built of them offline, then and in the tests
cargo package --workspace --allow-dirty --no-verify --quiet --locked
rm -f "$ROOT"/dist/libst-*.crate "$ROOT"/dist/libst-sys-*.crate
mv "$CARGO_TARGET_DIR"/package/*.crate "$ROOT/dist"
for made in "$ROOT"/dist/*.crate; do echo "dist/${made##*/}"; done
