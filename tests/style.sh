#!/usr/bin/env bash
# Is the tree as the formatters want it, and do the linters have nothing to say?
#   bash tests/style.sh [REPORT]     REPORT: JUnit XML
# Wants what tests/setup.sh installs. What clang-tidy passed it does not look at again until a file that it read may have
# changed.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${BUILD:-$ROOT/build}
PYTHON=${PYTHON:-$ROOT/build/venv/bin/python}
BIN=${PYTHON%/*}
REPORT=${1:-}
COMMANDS=$BUILD/commands # how the sources are compiled, several in one
PASSED=$BUILD/tidy       # a file for each of these that clang-tidy passed, named by what it saw
source "$ROOT/tests/trees.sh"
OUTPUT=$(mktemp)
trap 'rm -f "$OUTPUT"' EXIT
cd "$ROOT" || exit 1

# Files of git, also new ones, that are there and match.
files() { git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do [[ ! -f $file ]] || echo "$file"; done; }

# check NAME COMMAND...: a case of its own, in the words of `cargo test`. Exit status 77: it cannot run here.
check() {
  local name=$1 status
  shift
  "$@"
  status=$?
  case $status in
    0) echo "test $name ... ok" ;;
    77) echo "test $name ... ignored, there is no such tool here" ;;
    *) echo "test $name ... FAILED" ;;
  esac
}

format_c() { files '*.c' '*.h' '*.cpp' | xargs clang-format-14 --dry-run -Werror; }

# Several sources at once, as most of the time goes into the headers that they share.
tidy_one() { # UNIT COMMON: COMMON stands for all that every source sees
  local stamp
  stamp=$PASSED/$({ cat "$1" - <<<"$2" && sed -n 's/^#include<\(.*\)>$/\1/p' "$1" | xargs -d '\n' cat; } | sha256sum | cut -d' ' -f1)
  [[ -f $stamp ]] && return
  clang-tidy-14 -p "$COMMANDS" --config-file="$ROOT/.clang-tidy" --quiet --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null &&
    touch "$stamp"
}
export -f tidy_one
export PASSED COMMANDS ROOT

tidy() {
  local common
  mkdir -p "$PASSED"
  configure "$COMMANDS" -Dtests=true -Dcli=false && build "$COMMANDS" build.ninja || return 1
  sed -Ei 's/ (-fno-gnu-unique|--param=ggc-min-heapsize=[0-9]+)//g' "$COMMANDS/compile_commands.json" # which clang does not know, nor need
  common=$(files 'core/*.h' 'capi/*.h' .clang-tidy meson.build 'core/*meson.build' 'capi/*meson.build' | xargs cat | sha256sum | cut -d' ' -f1)
  sed -nE 's#.*"file": "((core|capi)/.*-unity[0-9]+\.cpp)".*#\1#p' "$COMMANDS/compile_commands.json" |
    xargs -P "$(nproc)" -I{} bash -c 'tidy_one "$@"' tidy_one "$COMMANDS/{}" "$common"
}

# bugprone-suspicious-include, which would dislike how several sources become one.
no_source_is_included() { ! git grep --untracked -nE '^[[:space:]]*#[[:space:]]*include.*\.(c|cc|cpp|cxx)[">]' -- core capi; }

format_go() {
  local bin unformatted
  bin=$(bash tests/go/toolchain.sh) || return 77
  unformatted=$("$bin/gofmt" -l bindings/go)
  [[ -z $unformatted ]] || { echo "gofmt would change $unformatted"; return 1; }
}

format_rust() {
  command -v cargo >/dev/null || return 77
  cargo fmt --manifest-path bindings/rust/Cargo.toml --all --check
}

# What a reader sees first. A new entry there is meant, and named here.
top_level() {
  local known=(.ci .clang-format .clang-tidy .gitattributes .gitignore CHANGELOG.md LICENSE README.md bindings capi core
    meson.build meson_options.txt pyproject.toml tests)
  ! git ls-files --cached --others --exclude-standard | cut -d/ -f1 | sort -u | grep -vxFf <(printf '%s\n' "${known[@]}")
}

st_h_has_one_width() { ! awk 'length > 80 { print FILENAME ":" FNR ": " length " wide" }' capi/include/st/st.h | grep .; }

generated() { "$PYTHON" capi/generate.py --check && "$PYTHON" tests/storage/hosts_table.py --check; }

mutants_are_in_the_sources() { "$PYTHON" tests/crash/mutants.py --list >/dev/null; }

lint_shell() { files '*.sh' .ci/run | xargs shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning; }

all() {
  check clang-format format_c
  check clang-tidy tidy
  check "no source is included" no_source_is_included
  check "ruff check" "$BIN/ruff" check --quiet --no-cache
  check "ruff format" "$BIN/ruff" format --quiet --no-cache --diff
  check pyright "$BIN/basedpyright" --pythonpath "$PYTHON"
  check gofmt format_go
  check rustfmt format_rust
  check shellcheck lint_shell
  check "the top level" top_level
  check "st.h is at most 80 wide" st_h_has_one_width
  check "what is generated" generated
  check "the texts that mutants change" mutants_are_in_the_sources
}

all 2>&1 | tee "$OUTPUT"
"$PYTHON" tests/cargo_junit.py "$OUTPUT" "$REPORT"
