#!/usr/bin/env bash
# Memory and descriptors, by valgrind, on the programs of the plain build that are quick under it: what the sanitizers
# cannot see is uninitialised memory, and libraries that were not built with them (simdjson, xxhash).
#   run.sh BUILD-TREE
# Left out, as they take minutes: headers of a hundred megabytes, and tests that move hundreds of megabytes or race
# many threads, which run one at a time here; and the children of a fork that leave a thread of their parent's to it, unfreed.
set -uo pipefail
tree=$1
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME PROGRAM ARGUMENT...: says the name, and the whole log of what is wrong with it.
check() {
  local name=$1 log=$work/$1.log status
  shift
  valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect,possible \
    --errors-for-leak-kinds=definite,indirect --track-fds=yes --child-silent-after-fork=yes --log-file="$log" \
    "$@" >"$work/$name.out" 2>&1 </dev/null
  status=$?
  # What the program had from us is no leak.
  if awk '/Open file descriptor|Open AF_/ { getline below; if (below !~ /inherited from parent/) { leak = 1 } } END { exit !leak }' "$log"; then
    status=98
  fi
  if ((status)); then
    printf 'not ok - %s (exit status %s)\n' "$name" "$status"
    tail -40 "$work/$name.out"
    cat "$log"
    return 1
  fi
  printf 'ok - %s\n' "$name"
}
export -f check
export work

# A program a line, and GoogleTest's filter for it.
xargs -P "$(nproc)" -L 1 bash -c 'check "$(basename "$0")" "$0" "$@"' <<END
$tree/tests/unit/unit_os --gtest_brief=1 --gtest_filter=-Helper.LeavesItsThread*:Helper.WaitsInNoChild*
$tree/tests/unit/unit_capi --gtest_brief=1 --gtest_filter=CapiCalls.*:CapiErrors.*:CapiLifetime.*:CapiOwnership.*:CapiOptions.OfA*-*Interrupt*:*Cancel*
$tree/tests/unit/unit_format --gtest_brief=1 --gtest_filter=-HostileHeader.*:TwoReaders.Give*:DamagedHeader.With*:ScanInWindows.*
$tree/tests/unit/unit_newfile --gtest_brief=1 --gtest_filter=PublishPlan*:RoomTest.*Identity*
$tree/tests/unit/unit_journal --gtest_brief=1 --gtest_filter=Journal*:Folder*:RecoverDistrusts*-*Large*:*EverySize*:*Megabytes*:*Cancelled*
$tree/tests/unit/unit_file --gtest_brief=1 --gtest_filter=DataFileTest.*:PendingCatalogueTest.*:PublishTest.*:Replaced.*:Inherits.*-*Cancel*:*Copy*:*Large*:*LongHeader*
$tree/tests/unit/unit_engine --gtest_brief=1 --gtest_filter=VerifyTest.*-*Cancel*
$tree/tests/unit/unit_read --gtest_brief=1 --gtest_filter=ArenaTest.*:ContentTest.*:DirectTest.EveryShape*:Requests.*:StrategyTest.*
END
