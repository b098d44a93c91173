#!/usr/bin/env bash
# The constants of a header, one "NAME value" a line: part of the ABI that no library shows.
#   constants.sh HEADER
# Without the version, which changes.
set -euo pipefail
sed -nE 's/^#define (ST_[A-Z0-9_]+) +([^ ].*)$/\1 \2/p' "$1" | sed -E 's,[[:space:]]*/\*.*,,' |
  grep -vE '^ST_VERSION_' | LC_ALL=C sort
