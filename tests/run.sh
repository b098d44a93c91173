#!/usr/bin/env bash
# Set up, build, and run every test there is. The last line sums them up; exit status 1 if any failed.
#   bash tests/run.sh             everything
#   bash tests/run.sh NAME...     only these stages: style unit storage python differential rust go cli install abi mutants
#                                 fuzz campaign sanitizers threads valgrind coverage demo
# Reports and logs are in build/results/.
trap 'printf "\nThe set-up or the build failed; no test ran.\n\n0 passed, 1 failed, 0 skipped\n"' EXIT
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
trap - EXIT
set +e

RESULTS=$BUILD/results
STAGES=$RESULTS/stages
rm -rf "$RESULTS"
mkdir -p "$RESULTS"
: >"$STAGES"
WANTED=" $* "

# stage NAME TITLE JUNIT COMMAND...: run a command under a heading; its cases are counted from JUNIT, or it is one itself.
stage() {
  local name=$1 title=$2 junit=$3 begin end status
  shift 3
  [[ $WANTED == "  " || $WANTED == *" $name "* ]] || return 0
  printf '\n==== %s\n' "$title"
  begin=$EPOCHREALTIME
  timeout --kill-after=30 1200 "$@" 2>&1 | tee "$RESULTS/$name.log"
  status=${PIPESTATUS[0]}
  end=$EPOCHREALTIME
  local seconds
  seconds=$(awk -v b="$begin" -v e="$end" 'BEGIN { printf "%.1f", e - b }')
  case $status in
    0) printf -- '---- %s: done in %s s\n' "$name" "$seconds" ;;
    77) printf -- '---- %s: skipped\n' "$name" ;;
    124) printf -- '---- %s: FAILED, took more than 20 minutes\n' "$name" ;;
    *) printf -- '---- %s: FAILED after %s s (exit status %s)\n' "$name" "$seconds" "$status" ;;
  esac
  printf '%s\t%s\t%s\t%s\n' "$title" "$status" "$seconds" "$junit" >>"$STAGES"
}

# run_meson BUILD-TREE: every test that Meson knows there.
run_meson() {
  rm -f "$1/meson-logs/testlog.junit.xml" # of an earlier run
  meson test -C "$1" --no-rebuild --print-errorlogs --quiet
}

run_pytest() {
  local directory=$1 report=$2
  [[ -d $ROOT/$directory ]] || { echo "there is no $directory"; return 1; }
  (cd "$ROOT" && "$PYTHON" -m pytest -q -p no:cacheprovider --timeout=300 --timeout-method=thread -rs \
    --junitxml="$report" "$directory")
}

run_sanitizers() {
  bash "$ROOT/tests/asan.sh" &&
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:malloc_context_size=10:quarantine_size_mb=32 \
      UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 ST_TEST_BOUND=small run_meson "$ROOT/build-asan"
}

run_abi() {
  [[ -f $ROOT/tests/abi/check.sh ]] || { echo "there is no tests/abi/check.sh yet"; return 77; }
  bash "$ROOT/tests/abi/check.sh"
}

export -f run_meson run_pytest run_sanitizers run_abi configure build say
export ROOT BUILD PYTHON CACHE

# Most of these keep one processor busy, and so go in two lanes, side by side.
lane_of_storage() {
  stage storage "real filesystems: power cuts, full disks, FUSE" "$RESULTS/storage.xml" bash -c "ST_BUILD=$BUILD run_pytest tests/storage $RESULTS/storage.xml"
  stage python "Python binding" "$RESULTS/python.xml" bash -c "run_pytest tests/python $RESULTS/python.xml"
}
lane_of_users() {
  stage differential "against stock safetensors 0.8" "$RESULTS/differential.xml" bash -c "run_pytest tests/differential $RESULTS/differential.xml"
  stage rust "Rust crates" "$RESULTS/rust.xml" bash "$ROOT/tests/rust/run.sh" "$RESULTS/rust.xml"
  stage go "Go binding" "$RESULTS/go.xml" bash "$ROOT/tests/go/run.sh" "$RESULTS/go.xml"
  stage cli "stctl" "$RESULTS/cli.xml" bash -c "run_pytest tests/cli $RESULTS/cli.xml"
  stage install "an installed libst" "$RESULTS/install.xml" bash -c "run_pytest tests/install $RESULTS/install.xml"
  stage abi "ABI check" "" bash -c run_abi
}

stage style "formatters and linters" "$RESULTS/style.xml" bash "$ROOT/tests/style.sh" "$RESULTS/style.xml"
stage unit "C++ and C tests" "$BUILD/meson-logs/testlog.junit.xml" bash -c 'run_meson "$BUILD"'
if [[ $WANTED == "  " ]]; then
  lane_of_storage >"$RESULTS/lane.log" 2>&1 &
  lane=$!
  lane_of_users
  wait "$lane" || printf 'storage and Python\t1\t0\t\n' >>"$STAGES" # it was killed
  cat "$RESULTS/lane.log"
else
  lane_of_storage
  lane_of_users
fi
stage mutants "sync mutants, those of CI" "" python3 "$ROOT/tests/crash/mutants.py" --quick --build "$BUILD/mutants"
stage fuzz "fuzzing, a minute each" "" bash "$ROOT/tests/fuzz/run.sh" 60
stage campaign "10^6 damaged headers against stock" "" bash "$ROOT/tests/campaign/run.sh"
stage sanitizers "ASan and UBSan" "$ROOT/build-asan/meson-logs/testlog.junit.xml" bash -c run_sanitizers
stage threads "ThreadSanitizer" "$BUILD-tsan/meson-logs/testlog.junit.xml" bash "$ROOT/tests/threads/run.sh"
stage valgrind "valgrind" "" bash "$ROOT/tests/valgrind/run.sh" "$BUILD"
stage coverage "coverage" "" bash "$ROOT/tests/coverage/run.sh"
stage demo "demo" "" bash "$ROOT/tests/demo.sh" --quick

"$PYTHON" "$ROOT/tests/tally.py" "$STAGES"
