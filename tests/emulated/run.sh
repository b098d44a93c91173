#!/usr/bin/env bash
# Programs for machines that we have not: a big-endian one (s390x), two of 32 bits (i686, armhf), and aarch64. This
# processor runs i686 as it is, qemu-user the others.
#   run.sh JUNIT-XML      from tests/run.sh
#   ST_MACHINES="armhf aarch64" bash tests/run.sh emulated      only these
set -euo pipefail
report=$(realpath -m "$1")
FOR=emulated bash "$ROOT/tests/setup.sh"
bash "$ROOT/core/subprojects/fetch.sh" simdjson xxhash tl-expected zstd gtest
export ST_TEST_BOUND=small
machines=${ST_MACHINES:-s390x i686 armhf aarch64}
status=0

# on MACHINE FILTER SUITE... -- TARGET...: build the targets, and run these tests of Meson's.
on() {
  local machine=$1 filter=$2 tests=() tree=$BUILD/emulated/$1
  shift 2
  [[ " $machines " == *" $machine "* ]] || return 0
  while [[ $1 != -- ]]; do tests+=("$1"); shift; done
  shift
  printf '%s\n' "$machine"
  configure "$tree" --cross-file "$ROOT/tests/emulated/$machine.ini" --wrap-mode=forcefallback --buildtype=release \
    -Doptimization=1 -Dtests=true -Dcli=false
  build "$tree" "$@"
  GTEST_FILTER=$filter run_meson "$tree" --timeout-multiplier 3 "${tests[@]}" || status=$?
}

# By qemu-user some tests take minutes, by headers of 100 MB; and the last needs process_vm_readv, which it lacks.
not_by_qemu='-HostileHeader.*Hundred*:TwoReaders.*:SpellHeader.RefusesOneThatIsLongerThanTheFormatAllows:*.MemoryThatCannotBeRead*'

# These hold to the bytes of the format and of journals.
bytes=(unit_base unit_format unit_journal)
on s390x "$not_by_qemu:HostileHeader.*" "${bytes[@]}" -- "${bytes[@]/#/tests/unit/}"

units=(base format os read newfile journal file shards delta engine capi capi_memory)
crashes=(crash_enumeration failing_calls save_crash layout_crash delta_crash shards_crash journal_gone second_writer cluster)
on i686 "*" "${units[@]/#/unit_}" "lifecycle in C99" "${crashes[@]//_/ }" -- \
  "${units[@]/#/tests/unit/unit_}" tests/c/lifecycle "${crashes[@]/#/tests/crash/}"

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
for machine in armhf aarch64; do
  on $machine "$not_by_qemu" "${units[@]/#/unit_}" "lifecycle in C99" -- "${units[@]/#/tests/unit/unit_}" tests/c/lifecycle
done

reports=()
for machine in $machines; do reports+=("$BUILD/emulated/$machine/meson-logs/testlog.junit.xml"); done
python3 "$ROOT/tests/join_junit.py" "$report" "${reports[@]}"
exit "$status"
