#!/usr/bin/env bash
# The programs that hold to the bytes of the format and of journals, on a big-endian processor: s390x, by qemu-user.
#   run.sh JUNIT-XML      from tests/run.sh
set -euo pipefail
report=$(realpath -m "$1")
FOR=emulated bash "$ROOT/tests/setup.sh"
bash "$ROOT/core/subprojects/fetch.sh" simdjson xxhash tl-expected zstd gtest
# These take minutes there, by headers of 100 MB; and the last needs process_vm_readv, which this emulator lacks.
export GTEST_FILTER="-HostileHeader.*:TwoReaders.*:SpellHeader.RefusesOneThatIsLongerThanTheFormatAllows:\
*.MemoryThatCannotBeRead*"
export ST_TEST_BOUND=small

programs=(unit_base unit_format unit_journal)
tree=$BUILD/emulated/s390x
configure "$tree" --cross-file "$ROOT/tests/emulated/s390x.ini" --wrap-mode=forcefallback --buildtype=release \
  -Doptimization=1 -Dtests=true -Dcli=false
build "$tree" "${programs[@]/#/tests/unit/}"
status=0
run_meson "$tree" "${programs[@]}" || status=$?
cp "$tree/meson-logs/testlog.junit.xml" "$report"
exit "$status"
