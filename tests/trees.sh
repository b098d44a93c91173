# shellcheck shell=bash
# Sourced: build trees beside build/, kept at the options that they are asked for. A warning is an error here, but not where
# others build, who may have any compiler. All compile several files in one, which
# takes less than half of the time; one file at a time is what `meson setup` does. Trees with wraps take eight at most: with
# 24, names in the sources of others, or of Windows, may stand twice.

# ccache leaves out where a tree lies: what one clone or worktree has compiled, no other compiles again.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=yes

# configure DIRECTORY OPTION...: set up a build tree, or give it these options if it has others. One that was copied here
# from elsewhere names the sources there, and is set up anew.
configure() {
  local directory=$1
  shift
  set -- -Dunity=on -Dunity_size=24 -Dwerror=true "$@"
  # A tree takes from its cross file what that said when it was set up.
  local of="$ROOT" given stamp=$directory/.options wanted now
  for given; do [[ ! -f $given ]] || of+=" $(cksum <"$given")"; done
  wanted=$of$'\n'"$*"
  now=$(cat "$stamp" 2>/dev/null || true)
  if [[ ! -f $directory/build.ninja || ${now%%$'\n'*} != "$of" ]]; then
    rm -rf "$directory"/{build.ninja,.ninja_deps,.ninja_log,meson-info,meson-logs,meson-private,meson-uninstalled,core,capi,bindings,tests}
    mkdir -p "$directory"
    meson setup "$directory" "$ROOT" "$@" >"$directory/setup.log" 2>&1 || { cat "$directory/setup.log"; return 1; }
  elif [[ $now != "$wanted" ]]; then
    meson configure "$directory" "$@"
  fi
  printf '%s' "$wanted" >"$stamp"
}

# build DIRECTORY [TARGET...]: quiet unless something is to tell. Two in one tree go one after the other.
build() (
  set -o pipefail
  flock "$1" ninja -C "$1" --quiet "${@:2}" 2>&1 | sed '/^ninja: no work to do/d'
)

# unpack_once WHEEL DIRECTORY: whole or not at all, also where two do so at once. A wheel of another version goes elsewhere.
unpack_once() {
  [[ ! -d $2 ]] || return 0
  local unpacked status=0
  mkdir -p "${2%/*}" && unpacked=$(mktemp -d "$2.XXXXXX") || return 1
  "$PYTHON" -m zipfile -e "$1" "$unpacked" && { mv -T "$unpacked" "$2" 2>/dev/null || [[ -d $2 ]]; } || status=1
  rm -rf "$unpacked"
  return $status
}
