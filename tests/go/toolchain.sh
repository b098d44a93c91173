#!/usr/bin/env bash
# Prints the folder of a Go that can build the binding. Where Go is missing or too old (Debian 12 has 1.19), it takes the
# one that Go itself would take then: the toolchain's module, which the module proxy gives and the checksum database knows.
set -euo pipefail
VERSION=1.26.8 # what to fetch
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
needed=$(sed -n 's/^go //p' "$ROOT/bindings/go/go.mod")

go=$(command -v go || true)
[[ -n $go || ! -x /usr/local/go/bin/go ]] || go=/usr/local/go/bin/go
if [[ -z $go ]]; then
  command -v apt-get >/dev/null || { echo "there is no Go, and no apt-get to get one" >&2; exit 1; }
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends golang-go >&2
  go=$(command -v go)
fi
cd / # in no module
export GOTOOLCHAIN=local
have=$("$go" env GOVERSION)
if [[ $(printf '%s\n' "$needed" "${have#go}" | sort -V | head -n 1) == "$needed" ]]; then
  echo "$("$go" env GOROOT)/bin"
  exit
fi
module=golang.org/toolchain@v0.0.1-go$VERSION.$("$go" env GOOS)-$("$go" env GOARCH)
place=$("$go" env GOMODCACHE)/$module
[[ -d $place ]] || GOFLAGS='' "$go" mod download "$module" >&2
find "$place/bin" "$place/pkg/tool" -type f -exec chmod +x {} + # a module's files are not executable
echo "$place/bin"
