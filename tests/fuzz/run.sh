#!/usr/bin/env bash
# The fuzzing of libst: builds the programs (asan.sh), replays what is kept, and looks for more.
#   bash tests/fuzz/run.sh [SECONDS [TARGET...]]            for CI: SECONDS each (5), two targets at a time
#   bash tests/fuzz/run.sh campaign MINUTES [TARGET...]     a hunt; what it learns stays in build/fuzz/learned/
#   bash tests/fuzz/run.sh replay FILE                      one input, of the target that the file's name or folder says
#   bash tests/fuzz/run.sh keep                             the smallest part of what was learned that reaches as much, into
#                                                           the archives of corpus/
# Targets: answers header journal operations shard_index shards slices steps. An input that breaks something is kept in
# build/fuzz/found/.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HERE=$ROOT/tests/fuzz
FUZZ=$ROOT/build/fuzz # findings, seeds, what corpus/ holds, and what is learned
PROGRAMS=$ROOT/build-asan/tests/fuzz
ALL=(answers header journal operations shard_index shards slices steps)
if ! command -v clang++-14 >/dev/null; then
  echo "skipped: there is no clang++-14"
  exit 77
fi

# Seconds of one input, MiB of memory, and of one allocation: a header of a few KiB may ask for no more.
LIMITS=(-timeout=25 -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=2048 -entropic=0)
export ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16:malloc_context_size=12 UBSAN_OPTIONS=print_stacktrace=1

make_programs() {
  bash "$ROOT/tests/asan.sh" fuzz || return 1
  rm -rf "$FUZZ/seeds"
  mkdir -p "$FUZZ/found"
  python3 "$HERE/seeds.py" "$FUZZ/seeds" && python3 "$HERE/pack.py" unpack "$FUZZ/corpus"
}

# hunt TARGET SECONDS: replays the seeds, the corpus and what was learned ($LEARNED), then mutates them.
hunt() {
  local target=$1 log=$FUZZ/$1.log options=()
  [[ -f $HERE/$target.dict ]] && options+=("-dict=$HERE/$target.dict") || options+=(-len_control=0)
  mkdir -p "$LEARNED/$target"
  "$PROGRAMS/${target}_fuzz" "${LIMITS[@]}" "${options[@]}" -max_total_time="$2" -print_final_stats=1 \
    -seed="$SEED" -artifact_prefix="$FUZZ/found/$target-" "$LEARNED/$target" "$FUZZ/corpus/$target" "$FUZZ/seeds/$target" >"$log" 2>&1
  local status=$? runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [[ $status -eq 0 && -n $runs && $runs -gt 0 ]]; then
    echo "test fuzz $target ... ok, $runs inputs, $(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)"
  else
    grep -aE "not so|invariant|ERROR|runtime error|^    #[0-9]" "$log" | head -30
    echo "test fuzz $target ... FAILED (exit status $status); the input is in $FUZZ/found, the log is $log"
    return 1
  fi
}

# Two at a time.
hunt_all() {
  local seconds=$1 failed=0 first
  shift
  local targets=("${@:-}")
  [[ -n ${targets[0]} ]] || targets=("${ALL[@]}")
  while ((${#targets[@]})); do
    hunt "${targets[0]}" "$seconds" &
    first=$!
    ((${#targets[@]} > 1)) && { hunt "${targets[1]}" "$seconds" || failed=1; }
    wait "$first" || failed=1
    targets=("${targets[@]:2}")
  done
  return $failed
}

replay() {
  local target
  for target in "${ALL[@]}"; do
    [[ $1 == *"$target"* ]] && exec "$PROGRAMS/${target}_fuzz" "${LIMITS[@]}" "$1"
  done
  echo "$1: neither its name nor its folder is that of a target (${ALL[*]})"
  return 1
}

keep() {
  local target
  for target in "${ALL[@]}"; do
    local merged=$FUZZ/merged/$target
    rm -rf "$merged"
    mkdir -p "$merged" "$FUZZ/learned/$target"
    "$PROGRAMS/${target}_fuzz" "${LIMITS[@]}" -use_counters=0 -use_value_profile=0 -merge=1 "$merged" "$FUZZ/corpus/$target" "$FUZZ/learned/$target" \
      >"$FUZZ/$target.merge.log" 2>&1 || { tail -5 "$FUZZ/$target.merge.log"; return 1; }
    python3 "$HERE/pack.py" pack "$merged" "$target"
    echo "$target: $(find "$merged" -type f | wc -l) inputs, $(du -sb "$merged" | cut -f1) bytes"
  done
}

make_programs || exit 1
LEARNED=$FUZZ/learned SEED=0 # any
case ${1:-5} in
  campaign)
    minutes=${2:?how many minutes?}
    shift 2
    hunt_all $((minutes * 60)) "$@"
    ;;
  replay) replay "${2:?which file?}" ;;
  keep) keep ;;
  *)
    seconds=${1:-5}
    [[ $# -gt 0 ]] && shift
    # From the same start every time, so that a red run is the change's: to find what was always wrong is for campaigns.
    LEARNED=$FUZZ/learned-here SEED=1
    rm -rf "$LEARNED"
    hunt_all "$seconds" "$@"
    ;;
esac
