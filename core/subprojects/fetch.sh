#!/usr/bin/env bash
# Bring the sources that the wraps name, where only Debian's mirror is reached. Elsewhere Meson downloads them itself, from
# the addresses in the wraps.
#   bash core/subprojects/fetch.sh NAME...     simdjson xxhash tl-expected zstd fmt cli11 gtest; without names, all of them
# Debian ships three archives as upstream made them: they go to packagecache/, and Meson compares their hashes. The other
# archives Debian repacked. What is taken of them lies where Meson would have unpacked it, and apt has checked it: of the
# three libraries that are headers alone, the headers in Debian's packages; of zstd, its sources. Nothing of this is
# installed, and git sees none of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# A list of packages of our own: the system's may lack sources, and only root may change it.
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
APT=(-qq -o "Dir::State::lists=$SCRATCH/lists" -o "Dir::Cache=$SCRATCH/cache" -o "Dir::Etc::sourceparts=$SCRATCH/sources"
  -o Dir::Etc::sourcelist=/dev/null -o APT::Sandbox::User=)

list() {
  [[ -d $SCRATCH/lists ]] && return
  mkdir -p "$SCRATCH"/{lists,cache,sources}/partial
  rmdir "$SCRATCH/sources/partial"
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    if [[ -f $file ]]; then sed 's/^Types:.*/Types: deb deb-src/' "$file" >"$SCRATCH/sources/${file##*/}"; fi
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    if [[ -f $file ]]; then sed -n '/^deb /{p;s/^deb /deb-src /;p}' "$file" >"$SCRATCH/sources/${file##*/}"; fi
  done
  apt-get "${APT[@]}" update
}

# upstream SOURCE-PACKAGE: what upstream released, from the newest version of the package whose archive is there. A mirror of
# security updates may lack it: Debian has it once, with the version before.
upstream() {
  local version
  for version in $(apt-cache "${APT[@]}" showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -rV); do
    ! (cd "$SCRATCH" && apt-get "${APT[@]}" source --download-only --tar-only "$1=$version") || return 0
  done
  return 1
}

# archive SOURCE-PACKAGE WRAP
archive() {
  local name
  name=$(sed -n 's/^source_filename = //p' "$2.wrap")
  [[ -f packagecache/$name ]] && return
  list
  upstream "$1"
  mkdir -p packagecache
  mv "$SCRATCH/$1"_*.orig.tar.gz "packagecache/$name"
}

# headers PACKAGE WRAP
headers() {
  local place
  place=$(sed -n 's/^directory = //p' "$2.wrap")
  [[ -d $place ]] && return
  list
  (cd "$SCRATCH" && apt-get "${APT[@]}" download "$1" && dpkg-deb --extract "$1"_*.deb "$1")
  cp -R "packagefiles/$2" "$SCRATCH/$2"
  cp -R "$SCRATCH/$1/usr/include" "$SCRATCH/$2/include"
  cp "$SCRATCH/$1/usr/share/doc/$1/copyright" "$SCRATCH/$2/LICENSE"
  mv "$SCRATCH/$2" "$place"
}

# repacked SOURCE-PACKAGE WRAP PART...
repacked() {
  local place part
  place=$(sed -n 's/^directory = //p' "$2.wrap")
  [[ -d $place ]] && return
  list
  upstream "$1"
  (cd "$SCRATCH" && python3 -m tarfile -e "$1"_*.orig.tar.xz "$1")
  cp -R "packagefiles/$2" "$SCRATCH/$2"
  for part in "${@:3}"; do cp -R "$SCRATCH/$1"/*/"$part" "$SCRATCH/$2"; done
  mv "$SCRATCH/$2" "$place"
}

command -v apt-get >/dev/null || { echo "There is no apt-get here: let Meson download what the wraps name."; exit 1; }
(($#)) || set -- simdjson xxhash tl-expected zstd fmt cli11 gtest
for name; do
  case $name in
    simdjson | xxhash) archive "$name" "$name" ;;
    gtest) archive googletest "$name" ;;
    tl-expected) headers libexpected-dev "$name" ;;
    zstd) repacked libzstd zstd LICENSE lib ;;
    fmt | cli11) headers "lib$name-dev" "$name" ;;
    *) echo "There is no wrap $name."; exit 2 ;;
  esac
done
