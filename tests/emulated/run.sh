#!/usr/bin/env bash
# Programs for machines that we have not: a big-endian one (s390x), two of 32 bits (i686, armhf), and aarch64. This
# processor runs i686 as it is, qemu-user the others. Each runs the programs of unit/, c/ and crash/, and the comparison with
# stock, differential/.
#   run.sh JUNIT-XML      from tests/run.sh
#   ST_MACHINES="armhf aarch64" bash tests/run.sh emulated      only these
set -euo pipefail
report=$(realpath -m "$1")
FOR=emulated bash "$ROOT/tests/setup.sh"
bash "$ROOT/core/subprojects/fetch.sh" simdjson xxhash tl-expected zstd gtest
export ST_TEST_BOUND=small
machines=${ST_MACHINES:-s390x i686 armhf aarch64 aarch64_64k}
status=0

units=(base format os read newfile journal file shards delta engine capi capi_memory)
crashes=(crash_enumeration failing_calls save_crash layout_crash delta_crash shards_crash journal_gone second_writer cluster)
tests=("${units[@]/#/unit_}" "lifecycle in C99" "${crashes[@]//_/ }")
targets=("${units[@]/#/tests/unit/unit_}" tests/c/lifecycle "${crashes[@]/#/tests/crash/}" tests/differential/answers)

# on MACHINE FILTER: build its programs, and run them; then the comparison with stock, which is a program of this machine and
# asks one of that machine.
on() {
  local machine=$1 filter=$2 tree=$BUILD/emulated/$1 cross=$ROOT/tests/emulated/$1.ini emulator
  [[ " $machines " == *" $machine "* ]] || return 0
  printf '%s\n' "$machine"
  configure "$tree" --cross-file "$cross" --wrap-mode=forcefallback -Dunity_size=8 --buildtype=release -Doptimization=1 -Dtests=true -Dcli=false
  rm -f "$tree/differential.xml" # of an earlier run
  build "$tree" "${targets[@]}"
  GTEST_FILTER=$filter run_meson "$tree" --timeout-multiplier 12 "${tests[@]}" || status=$?
  emulator=$(sed -n "s/^exe_wrapper = \[\(.*\)\]$/\1/p" "$cross" | tr -d "',")
  LIBST_ANSWERS="$emulator $tree/tests/differential/answers" LIBST_TEST_MUTATIONS=2000 \
    run_pytest tests/differential "$tree/differential.xml" || status=$?
}

on i686 "*"

# By qemu-user some tests take minutes, by headers of 100 MB; and the last two need process_vm_readv, which it lacks.
not_by_qemu='-HostileHeader.*Hundred*:TwoReaders.*:SpellHeader.RefusesOneThatIsLongerThanTheFormatAllows'
not_by_qemu+=':*.MemoryThatCannotBeRead*:Deltas.ThatAreTruncatedWhileTheyAreApplied*'
# It gives a program all memory there is, whatever RLIMIT_AS says. With 32 bits there is little to give.
not_by_qemu+=':OutOfMemory.TheFirstErrorOfAThreadIsAnswered'
# It also answers 0 to MADV_POPULATE_READ and MADV_POPULATE_WRITE without doing it. And it takes minutes where a test makes
# a thread for each of thousands of trials, or stops a call thousands of times.
not_by_qemu+=':*ViewsAsPayloads.Swap/*CopyOnWriteHandle:*ViewsAsPayloads.Swap/*CopyOnWriteOtherHandle'
not_by_qemu+=':*SlowDiskTest*/save*:*SlowDiskTest*/publish*:Fencing.AHostThatWasFrozenAmid*:Fencing.AHostThatWakesUpAmid*'
for name in CapiCalls.AHandleForWritableViewsIsHadBesideAnyOther CapiLifetime.ViewsAndNamesLiveAcrossCommitsAndReplacedFiles \
  CapiMappings.APatchDoesNotShowInACopyOnWriteMappingThatWasKept BulkStoreTest.AMappingThatFetchesItsOwnPagesIsPopulated \
  BulkStoreTest.AChildsChangeShowsInViewsFromBeforeTheFork CopyOnWrite.APatchByThisProcessShowsInNoView \
  CopyOnWrite.ARecoveryShowsInNoViewEither OldKernelTest.EachMissingCallHasItsFallBack \
  Slices.ShowInNoWritableViewOfThisProcess; do
  not_by_qemu+=:$name
done
# The crash enumeration runs with one operation: two and three go the same ways, and take qemu far too long.
not_by_qemu+=':*CrashEnumeration.EveryCutOfT*'
for machine in armhf aarch64; do on $machine "$not_by_qemu"; done
# /proc/self/pagemap is this machine's there, and has its numbers as this machine has them.
on s390x "$not_by_qemu:HostileHeader.*:MappingTest.WhatIsWrittenCopyOnWriteIsCountedAndNotInTheFile:CopyOnWrite.WhatIsWrittenIsCounted"

# Pages of 64 KiB, which few rooms ask for: their programs alone. There is no mincore (pages.py), so nothing is known to be in
# memory.
if [[ " $machines " == *" aarch64_64k "* ]]; then
  rooms=(base format os read newfile shards engine)
  tree=$BUILD/emulated/aarch64_64k
  printf 'aarch64 with pages of 64 KiB\n'
  configure "$tree" --cross-file "$ROOT/tests/emulated/aarch64_64k.ini" --wrap-mode=forcefallback -Dunity_size=8 --buildtype=release \
    -Doptimization=1 -Dtests=true -Dcli=false
  build "$tree" "${rooms[@]/#/tests/unit/unit_}"
  no_mincore=MappingTest.EveryKindShowsTheBytes:MissingCallsTest.ThisKernelHasWhatIsOlderThanDebian12
  no_mincore+=:ContentTest.LocalStorageIsMappedShared:ColdTest.TheFirstLoadGoesPastThePageCacheAndTheNextFillsIt
  no_mincore+=:ColdTest.WhatIsInMemoryInPartIsReadThroughIt
  GTEST_FILTER="$not_by_qemu:HostileHeader.*:MappingTest.WhatIsWrittenCopyOnWriteIsCountedAndNotInTheFile:CopyOnWrite.WhatIsWrittenIsCounted:$no_mincore" \
    run_meson "$tree" --timeout-multiplier 12 "${rooms[@]/#/unit_}" || status=$?
fi

reports=()
for machine in $machines; do
  for part in meson-logs/testlog.junit differential; do
    [[ ! -f $BUILD/emulated/$machine/$part.xml ]] || reports+=("$BUILD/emulated/$machine/$part.xml")
  done
done
python3 "$ROOT/tests/join_junit.py" "$report" "${reports[@]}"
exit "$status"
