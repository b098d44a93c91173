#!/usr/bin/env bash
# The constants of a header, one "NAME value" a line: part of the ABI that no library shows.
#   constants.sh HEADER
# Without the version, which changes, and the initialisers, which follow their structs.
set -euo pipefail
sed -nE 's/^#define (ST_[A-Z0-9_]+) +([^ ].*)$/\1 \2/p' "$1" | sed -E 's,[[:space:]]*/\*.*,,' |
  grep -vE '^ST_(VERSION_|[A-Z_]*_INIT )' | LC_ALL=C sort
