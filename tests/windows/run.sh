#!/usr/bin/env bash
# libst and stctl for Windows x64, by mingw-w64 and Meson's wraps, and how they read under wine.
#   run.sh JUNIT-XML      from tests/run.sh
set -euo pipefail
report=$(realpath -m "$1")
FOR=windows bash "$ROOT/tests/setup.sh"
bash "$ROOT/core/subprojects/fetch.sh"
tree=$BUILD/windows/x86_64
configure "$tree" --cross-file "$ROOT/core/platforms/windows_x86_64.ini" --cross-file "$ROOT/tests/windows/wine.ini" \
  --wrap-mode=forcefallback -Dunity_size=8 --buildtype=release -Ddefault_library=shared -Dtests=true
build "$tree"

# Without its debugger: a program that has crashed under that one has the exit status 0.
export LC_ALL=C.UTF-8 WINEPREFIX=$BUILD/windows/wine WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml,winedbg.exe= ST_TEST_BOUND=small
scratch=$(mktemp -d /dev/shm/libst-windows-XXXXXX)   # where a sync costs nothing
trap 'wineserver -k || true; rm -rf "$scratch"' EXIT # its processes outlive the programs
wineboot --init
# The services of wine begin with the first program and end with the last, and complain on its standard error.
mkfifo "$scratch/never"
exec 7<>"$scratch/never"
/usr/lib/wine/wine64 cmd <&7 >"$BUILD/windows/services.log" 2>&1 &
for temp in "$WINEPREFIX"/drive_c/users/*/Temp; do rm -rf "$temp" && ln -s "$scratch" "$temp"; done
status=0
run_meson "$tree" || status=$?
run_pytest tests/windows "$report.stctl" || status=$?
python3 "$ROOT/tests/join_junit.py" "$report" "$tree/meson-logs/testlog.junit.xml" "$report.stctl"
exit "$status"
