#!/usr/bin/env bash
# Unpack Debian's torch 1.13 into $CACHE/torch, and numpy 1.26 beside it, as it cannot work with numpy 2: for
# tests/python/test_torch.py. Nothing is installed on the machine; 150 MB to fetch, 15 seconds, once.
# PyPI's torch would be gigabytes of CUDA.
set -euo pipefail

: "${PYTHON:?}" "${CACHE:?}"
TARGET=$CACHE/torch
[[ -f $TARGET/.complete ]] && exit 0
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "torch: needs Python 3.11"; exit 1; }

printf 'Unpacking torch\n'
rm -rf "$TARGET"
mkdir -p "$TARGET/debs"
cd "$TARGET/debs"
# What apt would install, without what is there, and without tests, maps of the world, and the interpreter.
apt-get install --no-install-recommends -s python3-torch | awk '/^Inst/ {print $2}' |
  grep -vE '^(libtorch-test|proj-data|gdal-data|python3|python3\.11.*|python3-numpy|python3-minimal)$' |
  xargs apt-get -qq download -o APT::Sandbox::User=root
for package in *.deb; do dpkg -x "$package" "$TARGET"; done
cd "$TARGET"
rm -rf debs
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target numpy numpy==1.26.4
touch .complete
