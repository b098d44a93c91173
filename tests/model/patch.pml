/* A patch with a redo record, the look for hot journals, and recovery: one host, one file of two tensors, one journal
   a writer. README.md says which function each step stands for, and what is left out. */
#include "disk.pml"
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef AT_ONCE
#define AT_ONCE WRITERS /* as many run side by side; the next begins when one of them has ended */
#endif
#ifdef WITH_READER
#define OPENERS 1
#else
#define OPENERS 0
#endif
#define READER WRITERS
#define JUDGE (WRITERS + 1)

/* The first sector of a journal: zeros, a commit record, or zeros beside the copy of the last record. */
#define EMPTY 0
#define COMMITTED 1
#define EMPTIED 2

#define NOBODY 0 /* holds the journal's lock */
#define PARKED 1 /* shared */
#define WRITER 2 /* exclusive: a record may be in it on the disk */

Sector tensor[2];
Sector record[WRITERS];
Sector body[WRITERS]; /* payload, old hashes, manifest: 0 torn, 1 whole */
Sector name[WRITERS]; /* the entry of the journal folder */
byte mask[WRITERS];   /* the tensors of the transaction: what the manifest says */
byte value[WRITERS];  /* the new bytes */
byte old[WRITERS * 2];

byte header;       /* a bit a holder of the shared lock */
byte whole;        /* holder + 1 of the exclusive lock on the whole file */
byte owner[2];     /* holder + 1 of a tensor's lock */
byte journal_lock[WRITERS];
bool lost[WRITERS]; /* a write-back of the first sector failed, and its writer was told */

bool up = true;
byte kills = KILLS, cuts = CUTS, running, finished;

/* What must be in the file, and whose outcome is open: it was neither acknowledged nor seen by the next locker. */
byte truth[2];
bool open[WRITERS];

#include "recover.pml"

inline unlock(me) {
  d_step {
    header = header & ~bit(me);
    if :: whole == me + 1 -> whole = 0 :: else fi;
    if :: owner[0] == me + 1 -> owner[0] = 0 :: else fi;
    if :: owner[1] == me + 1 -> owner[1] = 0 :: else fi
  }
}

inline take(t, me) {
  if
  :: atomic { touches(me, t) && owner[t] == 0 && whole == 0 -> owner[t] = me + 1 }
  :: !touches(me, t)
  fi
}

proctype writer(byte me) {
  byte i, k, state, held;
  bool hot, idle;
  atomic { /* tensors of each, so that some pairs meet and some do not; and perhaps back to what was */
    up && running < AT_ONCE -> running++;
    if
    :: me == 0 -> value[me] = 1; if :: mask[me] = 3 :: WRITERS == 2 -> mask[me] = 2 fi
    :: me > 0 ->
      if :: mask[me] = me :: WRITERS == 2 -> mask[me] = 3 fi;
      if :: value[me] = 0 :: value[me] = 3 - me fi
    fi
  }
  {
    /* 1. stage: create the journal */
    atomic { may_die; put(name[me], 1); put(record[me], EMPTY); journal_lock[me] = PARKED }
again:
    /* 2. lock, then look */
#ifdef LOOK_BEFORE_LOCK
    find_hot(me, 0);
    if :: hot -> recover(me); goto again :: else fi;
    settle_idle(me);
#endif
#ifndef NO_HEADER
    atomic { whole == 0 -> header = header | bit(me) }
#endif
#ifdef UNORDERED
    if :: me != 1 -> take(0, me); take(1, me) :: me == 1 -> take(1, me); take(0, me) fi;
#else
    take(0, me);
    take(1, me);
#endif
#if !defined(NO_LOOK) && !defined(LOOK_BEFORE_LOCK)
    find_hot(me, mask[me]);
    if
    :: hot ->
#ifndef RECOVER_HOLDING
      unlock(me);
#endif
      recover(me);
      goto again
    :: else
    fi;
#ifndef NO_SETTLE
    if :: idle -> settle_idle(me) :: else fi;
#endif
#endif
    resolve(mask[me]);
    /* 3. note a hash of each old sector, write the manifest */
    atomic { may_die; old[2 * me] = tensor[0].now; old[2 * me + 1] = tensor[1].now; put(body[me], 1) }
    /* 4. make the journal durable */
#if !defined(NO_JOURNAL_SYNC) && !defined(RECORD_FIRST)
    atomic { may_die; sync(record[me]); sync(body[me]) }
#endif
#ifndef NO_FOLDER_SYNC
    atomic { may_die; sync(name[me]) }
#endif
    /* 5. write the commit record */
    atomic {
      may_die;
#ifndef JOURNAL_LOCK_STAYS_SHARED
      journal_lock[me] = WRITER;
#endif
      put(record[me], COMMITTED);
      open[me] = true
    }
    /* 6. make the record durable */
#ifndef NO_RECORD_SYNC
    atomic {
      may_die;
      sync(record[me]);
#ifndef NO_JOURNAL_SYNC
      sync(body[me])
#endif
    }
#endif
    /* 7. write the bytes into the file */
    atomic { may_die; if :: touches(me, 0) -> put(tensor[0], value[me]) :: else fi }
    atomic { may_die; if :: touches(me, 1) -> put(tensor[1], value[me]) :: else fi }
    /* 8. make the bytes durable */
#ifndef EMPTIED_FIRST
    atomic { may_die; if :: touches(me, 0) -> sync(tensor[0]) :: else fi; if :: touches(me, 1) -> sync(tensor[1]) :: else fi }
#endif
#ifdef UNLOCK_EARLY
    unlock(me);
#endif
    /* 9. empty the journal */
    atomic { may_die; put(record[me], EMPTIED) }
#ifdef WITH_EIO
    atomic { if :: kills > 0 -> kills--; lost[me] = true; goto dead :: true fi } /* the sync fails; then it is killed */
#endif
#ifndef NO_EMPTY_SYNC
    atomic { may_die; sync(record[me]) }
#endif
#ifdef EMPTIED_FIRST
    atomic { may_die; if :: touches(me, 0) -> sync(tensor[0]) :: else fi; if :: touches(me, 1) -> sync(tensor[1]) :: else fi }
#endif
    /* 10. unlock, answer ST_OK. The journal is parked from here. */
    d_step {
      journal_lock[me] = PARKED;
      open[me] = false;
      if :: touches(me, 0) -> truth[0] = value[me] :: else fi;
      if :: touches(me, 1) -> truth[1] = value[me] :: else fi
    }
    unlock(me);
    /* close: the journal goes */
    d_step { put(name[me], 0); journal_lock[me] = NOBODY }
    goto gone;
dead: /* The kernel takes the locks of a killed process one file after the other. */
    if
    :: unlock(me); journal_lock[me] = NOBODY
    :: journal_lock[me] = NOBODY; unlock(me)
    fi;
gone: skip
  } unless { !up };
  d_step { i = 0; k = 0; state = 0; held = 0; hot = false; idle = false; running--; finished++ }
}

/* Opens the file once, at any time. */
proctype reader() {
  byte i, k, state, held;
  bool hot, idle;
  atomic { up -> running++ }
  {
    find_hot(READER, 0);
    if :: hot -> recover(READER) :: else fi;
    goto gone;
dead:
    unlock(READER);
gone: skip
  } unless { !up };
  d_step { i = 0; k = 0; state = 0; held = 0; hot = false; idle = false; running--; finished++ }
}

/* Opens the file in the end. What `recover` asserts holds for whatever was left. */
proctype judge() {
  byte i, k;
again:
  atomic { up && finished == WRITERS + OPENERS -> running++ }
  { recover(JUDGE); goto done; dead: skip; done: skip } unless { !up };
  d_step { i = 0; k = 0; running-- };
  if :: !up -> goto again :: up fi
}

proctype power() {
  byte n;
end:
  do
  :: atomic {
      cuts > 0 && up -> cuts--; up = false;
      header = 0; whole = 0; owner[0] = 0; owner[1] = 0;
      for (n : 0 .. WRITERS - 1) { journal_lock[n] = NOBODY };
      n = 0
    }
    atomic {
      running == 0 ->
      lose_cache(tensor[0]); lose_cache(tensor[1]);
      for (n : 0 .. WRITERS - 1) { lose_cache(record[n]); lose_cache(body[n]); lose_cache(name[n]) };
      n = 0; up = true
    }
  od
}

init {
  byte n;
  atomic {
    tensor[0].may = 1; tensor[1].may = 1;
    for (n : 0 .. WRITERS - 1) { record[n].may = 1; body[n].may = 1; name[n].may = 1 };
    for (n : 0 .. WRITERS - 1) { run writer(n) };
#ifdef WITH_READER
    run reader();
#endif
    run judge(); run power()
  }
}
