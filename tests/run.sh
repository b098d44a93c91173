#!/usr/bin/env bash
# Set up, build, and run the tests. The last line sums them up; exit status 1 if any failed.
#   bash tests/run.sh             all stages but the three below that are not part of a run; of long tests a share
#   bash tests/run.sh --fast      before a commit: linters and formatters, the C++ suite without crashes and storms, the
#                                 comparison with stock, and what is quick of the Python package's tests
#   bash tests/run.sh NAME...     only these stages: style unit storage remote python differential rust go cli install abi mutants
#                                 model fuzz campaign sanitizers threads valgrind coverage demo dist
#   bash tests/run.sh --full NAME...        these with all that CI has no time for (ST_TEST_BOUND=full): minutes to hours
#   bash tests/run.sh dist-all emulated windows     not part of a run: all that dist.sh makes, with all tests of it; s390x,
#                                 big-endian, armhf, of 32 bits, and aarch64, by qemu; i686, of 32 bits;
#                                 Windows x64, by wine
# Reports and logs are in build/results/.
FAST=
[[ ${1:-} == --fast ]] && { FAST=yes RIG=no ST_TEST_BOUND=small; shift; }
MOST_SECONDS=2700 # of a stage, on a machine that is three times as slow as usual
[[ ${1:-} == --full ]] && { ST_TEST_BOUND=full MOST_SECONDS=0; shift; }
ALL=
(($#)) || ALL=yes
export FAST ALL MOST_SECONDS ${ST_TEST_BOUND+ST_TEST_BOUND}
trap 'printf "\nThe set-up or the build failed; no test ran.\n\n0 passed, 1 failed, 0 skipped\n"' EXIT
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
trap - EXIT
set +e

RESULTS=$BUILD/results
STAGES=$RESULTS/stages
QUEUE=$RESULTS/queue
FAILED=$RESULTS/failed # their names
rm -rf "$RESULTS"
mkdir -p "$RESULTS"
: >"$STAGES"
: >"$FAILED"

# run_meson BUILD-TREE ARGUMENT...: the tests that Meson knows there.
run_meson() {
  rm -f "$1"/*.xml "$1"/meson-logs/testlog.{junit.xml,json} # of an earlier run
  set -- "$@" --no-rebuild --print-errorlogs --quiet
  ((MOST_SECONDS)) || set -- "$@" --timeout-multiplier 0
  meson test --timeout-multiplier 4 -C "$@" # on a slow machine; and a stage that hangs is ended
}

run_pytest() {
  local directory=$1 report=$2
  [[ -d $ROOT/$directory ]] || { echo "there is no $directory"; return 1; }
  (cd "$ROOT" && "$PYTHON" -m pytest -q -p no:cacheprovider --timeout=$((MOST_SECONDS / 6)) --timeout-method=thread -rs \
    --junitxml="$report" "$directory")
}

# In a run of all stages most of it runs as coverage counts it, and not twice.
run_unit() {
  if [[ $FAST ]]; then
    run_meson "$BUILD" --suite unit --suite c
  elif [[ $ALL ]]; then
    run_meson "$BUILD" --no-suite counted
  else
    run_meson "$BUILD"
  fi
}

# Without power cuts but those of a recovery, as the others take longest: the failing calls go the same ways. Programs that try
# the same on many files, disks and hosts leave most of these to the plain build. Of meetings there are those of a recovery,
# where the second host does all works; of hosts that lose their locks, those on the server in memory.
run_sanitizers() {
  local filter='-*Cuts.*:*CrashEnumeration.EveryCutOfT*:*PlanTest*/file*:*PlanTest*/shards*:*PlanTest*/new_names:*SlowDiskTest*/save*'
  filter+=':*SlowDiskTest*/publish*:*ViewsAsPayloads*/300000*:LargeTransaction.*:*CrashEnumeration.EveryCutOfO*'
  filter+=':*Cluster.*_by_glusterfs:Fencing.AHostThatWakesUp*:Fencing.AHostThatWasFrozenAmid*:*ClusterMeeting*/save:*ClusterMeeting*/p*:*ClusterFencing*/save:*ClusterFencing*/p*'
  filter+=':*/RedoFourFlushes:*LargeFailures*Copied:FewDescriptorsTest.AChangeOfAll*:CapiLongLife.AChildBegins*'
  filter+=':WriterTest.ATensorThatNoHeader*:WriterTest.TheLongestHeader*:SpellHeader.RefusesOneThatIsLonger*:ShardIndex.RefusesToSpellOneThatIsLonger'
  bash "$ROOT/tests/asan.sh" &&
    ASAN_OPTIONS=handle_sigill=1:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:malloc_context_size=5:quarantine_size_mb=32 \
      UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 ST_TEST_BOUND=${ST_TEST_BOUND:-small} GTEST_FILTER="${GTEST_FILTER-$filter}" \
      run_meson "$ROOT/build-asan"
}

export -f run_meson run_pytest run_unit run_sanitizers configure build say
export ROOT BUILD PYTHON CACHE

# stage NAME: run it under a heading; its cases are counted from JUnit XML, or it is one itself.
stage() {
  local report=$RESULTS/$1.xml
  case $1 in
    style) run "$1" "formatters and linters" "$report" bash "$ROOT/tests/style.sh" "$report" ;;
    unit) run "$1" "C++ and C tests" "$BUILD/meson-logs/testlog.junit.xml" bash -c run_unit ;;
    storage) run "$1" "real filesystems: power cuts, full disks, FUSE" "$report" bash -c "ST_BUILD=$BUILD run_pytest tests/storage $report" ;;
    remote) run "$1" "URLs: servers on loopback" "$report" bash -c "run_pytest tests/remote $report" ;;
    python) run "$1" "Python binding" "$report" bash -c "run_pytest tests/python $report" ;;
    differential) run "$1" "against stock safetensors 0.8" "$report" bash -c "run_pytest tests/differential $report" ;;
    rust) run "$1" "Rust crates" "$report" bash "$ROOT/tests/rust/run.sh" "$report" ;;
    go) run "$1" "Go binding" "$report" bash "$ROOT/tests/go/run.sh" "$report" ;;
    cli) run "$1" "stctl" "$report" bash -c "run_pytest tests/cli $report" ;;
    install) run "$1" "an installed libst" "$report" bash -c "run_pytest tests/install $report" ;;
    dist) run "$1" "wheels, on bare systems" "$report" bash "$ROOT/tests/dist/run.sh" "$report" ;;
    dist-all) MOST_SECONDS=$((MOST_SECONDS * 4)) run "$1" "wheels and the source package, on bare systems" "$report" env ST_DIST=all bash "$ROOT/tests/dist/run.sh" "$report" ;;
    emulated) MOST_SECONDS=$((MOST_SECONDS * 4)) run "$1" "other processors" "$report" bash "$ROOT/tests/emulated/run.sh" "$report" ;;
    windows) MOST_SECONDS=$((MOST_SECONDS * 4)) run "$1" "Windows x64, by wine" "$report" bash "$ROOT/tests/windows/run.sh" "$report" ;;
    abi) run "$1" "ABI check" "" bash "$ROOT/tests/abi/check.sh" ;;
    mutants) run "$1" "sync mutants, those of CI" "" python3 "$ROOT/tests/crash/mutants.py" --quick --build "$BUILD/mutants" ;;
    model) run "$1" "models of the protocol" "" bash "$ROOT/tests/model/run.sh" ;;
    fuzz) run "$1" "fuzzing, 5 seconds each" "" bash "$ROOT/tests/fuzz/run.sh" 5 ;;
    campaign) run "$1" "300,000 damaged headers against stock" "" bash "$ROOT/tests/campaign/run.sh" ;;
    sanitizers) run "$1" "ASan and UBSan" "$ROOT/build-asan/meson-logs/testlog.junit.xml" bash -c run_sanitizers ;;
    threads) run "$1" "ThreadSanitizer" "$BUILD-tsan/meson-logs/testlog.junit.xml" bash "$ROOT/tests/threads/run.sh" ;;
    valgrind) run "$1" "valgrind" "" bash "$ROOT/tests/valgrind/run.sh" "$BUILD" ;;
    coverage) run "$1" "C++ tests, and what they cover" "$report" bash "$ROOT/tests/coverage/run.sh" "$report" ;;
    demo) run "$1" "demo" "" bash "$ROOT/tests/demo.sh" --quick ;;
    *) run "$1" "$1: there is no such stage" "" false ;;
  esac
}

# run NAME TITLE JUNIT COMMAND...
run() {
  local name=$1 title=$2 junit=$3 log=$RESULTS/$1.log status seconds user system
  shift 3
  local TIMEFORMAT='%R %U %S'
  if [[ -f $QUEUE ]]; then
    { time timeout --kill-after=30 "$MOST_SECONDS" "$@" >"$log" 2>&1; } 2>"$log.time"
    status=$?
    exec 8>>"$QUEUE.printing"
    flock 8
    printf '\n==== %s\n' "$title"
    cat "$log"
  else
    printf '\n==== %s\n' "$title"
    {
      time timeout --kill-after=30 "$MOST_SECONDS" "$@" 2>&1 | tee "$log"
      status=${PIPESTATUS[0]}
    } 2>"$log.time"
  fi
  read -r seconds user system < <(tail -n 1 "$log.time")
  case $status in
    0) printf -- '---- %s: done in %s s\n' "$name" "$seconds" ;;
    77) printf -- '---- %s: skipped\n' "$name" ;;
    124) printf -- '---- %s: FAILED, took more than %s minutes\n' "$name" "$((MOST_SECONDS / 60))" ;;
    *) printf -- '---- %s: FAILED after %s s (exit status %s)\n' "$name" "$seconds" "$status" ;;
  esac
  [[ ! -f $QUEUE ]] || exec 8>&-
  [[ $status == 0 || $status == 77 ]] || printf '%s\n' "$name" >>"$FAILED"
  printf '%s\t%s\t%s\t%s\t%s\n' "$title" "$status" "$seconds" "$(awk "BEGIN { print $user + $system }")" "$junit" >>"$STAGES"
}

# What a worker takes next: stages that share a tree are on one line. Long ones come first. A third worker begins with those
# that wait for disks, hosts and servers, so that no processor waits with them.
all_of_them() {
  cat <<END
fuzz sanitizers
dist
coverage abi
threads
unit valgrind
rust campaign
install go
mutants
style
python
differential model
cli
demo
END
}
waiting_ones() { printf '%s\n' storage remote; }
quick_ones() { printf '%s\n' unit style python differential; }

take_next() (
  flock 9
  head -n 1 "$QUEUE"
  sed -i 1d "$QUEUE"
) 9>"$QUEUE.lock"

work() {
  local names name
  while names=$(take_next) && [[ $names ]]; do
    for name in $names; do stage "$name"; done
  done
}

wait_then_work() {
  local name
  for name in $(waiting_ones); do stage "$name"; done
  work
}

if (($#)); then
  for name; do stage "$name"; done
else
  if [[ $FAST ]]; then quick_ones; else all_of_them; fi >"$QUEUE"
  wanted=$(wc -w <"$QUEUE")
  work &
  work &
  [[ $FAST ]] || { wait_then_work & wanted=$((wanted + $(waiting_ones | wc -l))); }
  trap 'pkill -P "$(jobs -p | paste -sd,)"; kill $(jobs -p); exit 130' INT TERM # jobs of a script do not hear of Ctrl-C
  wait
  trap - INT TERM
  rm "$QUEUE"
  for ((left = wanted - $(wc -l <"$STAGES"); left > 0; left--)); do printf 'a stage that was killed\t1\t0\t0\t\n' >>"$STAGES"; done
fi

# Where many stages ran, the words of those that failed are far above, and a log that is cut loses them.
if [[ $(wc -l <"$STAGES") -gt 1 ]]; then
  while read -r name; do printf '\n==== %s failed; its last lines again\n%s\n' "$name" "$(tail -n 60 "$RESULTS/$name.log")"; done <"$FAILED"
fi
"$PYTHON" "$ROOT/tests/tally.py" "$STAGES"
