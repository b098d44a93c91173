#!/usr/bin/env bash
# Check the models and their broken variants with spin: every reachable state, or up to the first error of a variant that
# is meant to have one. A line for each, and "ok" if the answer is the expected one.
#   bash tests/model/run.sh            everything
#   bash tests/model/run.sh PATTERN    the lines of the list below that match a regular expression, each with its trace
# The exit status is 77 if there is no spin.
set -uo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v spin >/dev/null || { echo "SKIPPED: there is no spin here; Debian's package is called spin"; exit 77; }
# tcc runs twice as long as gcc -O2 on millions of states, and gcc compiles for longer than that.
COMPILER=(gcc -O0)
if command -v tcc >/dev/null; then COMPILER=(tcc); fi

# Model, expected answer, and the switches.
variants() {
  cat <<END
patch safe -DWITH_READER -DWRITERS=2 -DCUTS=0
patch safe -DWRITERS=2 -DCUTS=2
patch safe -DAT_ONCE=2
patch safe -DWRITERS=2 -DNO_HEADER
patch fault -DWRITERS=2 -DNO_JOURNAL_SYNC
patch fault -DWRITERS=2 -DRECORD_FIRST
patch fault -DWRITERS=2 -DNO_FOLDER_SYNC
patch fault -DWRITERS=2 -DNO_RECORD_SYNC
patch fault -DWRITERS=2 -DEMPTIED_FIRST
patch fault -DWRITERS=2 -DNO_EMPTY_SYNC
patch fault -DWRITERS=2 -DUNLOCK_EARLY
patch fault -DWRITERS=2 -DNO_LOOK
patch fault -DWRITERS=2 -DLOOK_BEFORE_LOCK
patch fault -DWRITERS=2 -DNO_SETTLE
patch fault -DWRITERS=2 -DNO_IS_ON
patch fault -DWRITERS=2 -DJOURNAL_LOCK_STAYS_SHARED
patch fault -DWITH_READER -DWRITERS=2 -DRECOVER_UNLOCKED
patch fault -DWRITERS=2 -DNO_CONFIRM
patch fault -DWRITERS=2 -DRECOVERY_EMPTIES_FIRST
patch safe -DWRITERS=2 -DWITH_EIO -DTOUCH
patch fault -DWRITERS=2 -DWITH_EIO
patch deadlock -DWRITERS=2 -DUNORDERED
patch deadlock -DWRITERS=2 -DRECOVER_HOLDING
two_syncs safe -DREUSE_SYNCS -DKILLS=0
two_syncs safe -DREUSE_COVERED -DKILLS=0
two_syncs safe -DREUSE_COVERED -DTXNS0=1
two_syncs safe -DREUSE_COVERED -DTXNS0=1 -DWITH_PUBLISH
two_syncs safe -DREUSE_COVERED -DTOUCH -DWITH_EIO -DTXNS0=1 -DTXNS1=2 -DKILLS=0
two_syncs fault -DREUSE_FREELY -DKILLS=0
two_syncs fault -DREUSE_COVERED -DNAME_LATE -DTXNS0=1
two_syncs fault -DREUSE_COVERED -DNO_NEXT_LOCKER -DTXNS0=1 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DNO_OWN_POOL -DTXNS1=0 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DTRUSTS_MANIFEST -DKILLS=0
two_syncs fault -DREUSE_COVERED -DCLOSE_NO_SYNC -DTXNS0=1 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DNO_NEXT_LOCKER -DWITH_PUBLISH -DTXNS0=1 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DWITH_EIO -DTXNS0=1 -DTXNS1=2 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DFOREIGN_WRITER -DTXNS0=1 -DTXNS1=0 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DFOREIGN_REMOVER -DTXNS0=1 -DKILLS=0
two_syncs fault -DREUSE_COVERED -DNO_FIRST_SYNC -DTXNS0=1 -DTXNS1=0 -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DTXNS0=1
two_syncs safe -DWRITTEN_OUT -DREPEATS -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DREPEATS -DTXNS0=1
two_syncs safe -DWRITTEN_OUT -DTXNS0=1 -DWITH_PUBLISH
two_syncs safe -DWRITTEN_OUT -DFOREIGN_WRITER -DTXNS0=1 -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DFOREIGN_REMOVER -DTXNS0=1 -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DCLOSE_NO_SYNC -DTXNS0=1 -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DONE_PASS -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DNO_SYNC_BEFORE -DTXNS0=1
two_syncs fault -DWRITTEN_OUT -DNO_NEXT_LOCKER -DTXNS0=1
two_syncs safe -DWRITTEN_OUT -DREPEATS -DLATER -DKILLS=0
two_syncs safe -DWRITTEN_OUT -DREPEATS -DLATER -DTXNS0=1
two_syncs safe -DWRITTEN_OUT -DREPEATS -DLATER -DTXNS0=1 -DWITH_PUBLISH
two_syncs fault -DWRITTEN_OUT -DREPEATS -DLATER -DNO_SETTLE -DTXNS1=0 -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DREPEATS -DLATER -DNO_DATA_SYNC -DTXNS0=1 -DTXNS1=0 -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DREPEATS -DLATER -DNO_HEADER -DTXNS0=2 -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DREPEATS -DLATER -DTRUSTS_THE_LOCK -DTXNS0=1 -DKILLS=0
two_syncs fault -DWRITTEN_OUT -DREPEATS -DLATER -DREUSES -DKILLS=0
hosts safe -DLOSSES=0
hosts safe -DKILLS=0
hosts safe -DLOCKED_IO
hosts fault -DNOT_CLAIMED
hosts fault -DREAD_BEFORE
hosts fault -DTAKEN_BACK
hosts fault -DREUSED_BLINDLY
hosts fault -DSTALE_LOOK
hosts fault -DSTALE_READ
hosts fault -DBYTE_LOCKS
hosts fault -DNO_FENCE
hosts fault -DNO_CHECK_AFTER
hosts fault -DIN_FLIGHT
hosts safe -DPUBLISHES=1
hosts safe -DSTOCK_SAVE -DLOSSES=0
hosts fault -DPUBLISHES=1 -DRENAMED_UNASKED
hosts fault -DPUBLISHES=1 -DREPLACED_UNSEEN
hosts fault -DPUBLISHES=1 -DIN_FLIGHT
hosts fault -DSTOCK_SAVE -DLOSSES=0 -DINODE_UNSEEN
hosts safe -DCUTS=1 -DKILLS=0
hosts fault -DCUTS=1 -DKILLS=0 -DUNLINKED_AT_ONCE
hosts fault -DCUTS=1 -DKILLS=0 -DGONE_UNSYNCED
hosts fault -DCUTS=1 -DKILLS=0 -DGONE_LOOKED_AT
decisions safe
decisions fault -DNO_CHECK_AFTER
decisions fault -DNOT_ASKED_AGAIN
decisions fault -DNOT_CLAIMED
decisions fault -DREAD_BEFORE
decisions fault -DFINISHED_UNCLAIMED
decisions fault -DPART_FIRST
decisions fault -DPARTS_TAKEN_BLINDLY
decisions fault -DDROPPED_BLINDLY
takeovers safe -DLOSSES=0
takeovers safe -DLOSSES=1
takeovers fault -DLOSSES=0 -DREAD_BEFORE
takeovers fault -DLOSSES=0 -DTAKEN_UNLOCKED
takeovers fault -DLOSSES=1 -DUNSAID
takeovers fault -DLOSSES=1 -DLOCKED_BLINDLY
shown safe -DA=3 -DB=2 -DFAILS=1
shown safe -DA=6 -DC=7
shown safe -DC=7 -DB=2 -DDIES=1
shown safe -DA=7 -DC=2 -DFAILS=1
shown safe -DC=3 -DA=5
shown safe -DC=3 -DB=4
shown safe -DA=7 -DREFRESHES=2 -DOWN_MEMORY
shown safe -DA=6 -DC=2 -DFAILS=1 -DHOT_STAYS_OPEN
shown fault -DA=6 -DSHARDS_NOT_WITHHELD
shown fault -DA=7 -DINDEX_NOT_WITHHELD
shown fault -DA=6 -DWITHHELD_ASKED_BEFORE
shown fault -DA=6 -DCOMMIT_SHOWN_ONE_BY_ONE
shown fault -DC=6 -DB=2 -DFOUND_ONE_BY_ONE
shown fault -DA=7 -DOWN_MEMORY -DWITHHELD_IS_AN_ERROR
shown fault -DA=7 -DOWN_MEMORY -DREPLACED_IS_AN_ERROR
shown fault -DA=6 -DFAILS=1 -DFAILED_SEEN
shown fault -DA=6 -DC=2 -DFAILS=1 -DUNSEEN_ASKED_LATE
shown fault -DA=6 -DC=2 -DFAILS=1 -DNOT_RECOVERED_FIRST
shown fault -DA=3 -DB=2 -DFAILS=1 -DREFRESHED_UNCOUNTED
shown fault -DA=6 -DB=2 -DFAILS=1 -DASKED_BEFORE
shown fault -DA=5 -DB=3 -DSHOWN_UNCOUNTED
shown fault -DC=6 -DB=2 -DFOLLOWED_ALONE
shown fault -DC=3 -DB=4 -DFOREIGN_INDEX_KNOWN
shown fault -DC=3 -DA=5 -DREPLACED_UNSEEN
END
}

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
failed=0

# check MODEL EXPECTED SWITCH...
check() {
  local model=$1 expected=$2 answer states seconds TIMEFORMAT=%U
  shift 2
  rm -f pan* ./*.trail
  spin "$@" -a "$HERE/$model.pml" >spin.log 2>&1 || { cat spin.log; return 1; }
  "${COMPILER[@]}" -w -DSAFETY -DNOFAIR -DMEMLIM=3500 -o pan pan.c || return 1
  # A table of 2^24 states takes longer to be cleared than most errors to be found.
  local table=-w20
  [[ $expected != safe ]] || table=-w24
  { time ./pan -m100000 $table >pan.log 2>&1; } 2>seconds
  seconds=$(<seconds)
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
  if grep -q "memory limit" pan.log || grep -q 'max search depth too small\|out of memory\|search not completed' pan.log && ! grep -q 'errors: 1' pan.log; then
    answer=unfinished
  elif grep -q '^pan:1: invalid end state' pan.log; then
    answer=deadlock
  elif grep -q 'assertion violated' pan.log; then
    answer=fault
  elif grep -q 'errors: 0' pan.log; then
    answer=safe
  else
    answer=unfinished
  fi
  local verdict=ok
  [[ $answer == "$expected" ]] || verdict="not ok"
  printf '%-6s  %-9s %-8s %9s states %6s s  %s\n' "$verdict" "$model" "$answer" "$states" "$seconds" "${*#-D}"
  if [[ $PATTERN && $answer != safe ]]; then
    sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' pan.log
    spin -T -t -k "$model.pml.trail" "$@" "$HERE/$model.pml" 2>&1 | sed -n "/^spin: trail ends/q;p"
  fi
  [[ $verdict == ok ]]
}

cd "$WORK" || exit 1
PATTERN=${1:-}
started=$SECONDS
while read -r model expected switches; do
  [[ "$model $switches" =~ $PATTERN ]] || continue
  # shellcheck disable=SC2086
  check "$model" "$expected" $switches || failed=$((failed + 1))
done < <(variants)
times >processor.time
sed -n '2s,^,processor time (user; system): ,p' processor.time
echo "$failed of the answers were not the expected ones; $((SECONDS - started)) s"
exit $((failed > 0))
