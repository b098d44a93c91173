/* A redo commit of two syncs: payload, manifest and record share one sync, because the record has the hash
   of all of them; the data has the second; the emptiness of the journal is made durable later, by the rules below.
   Handle 0 has a pool of two journals, handle 1 has one. README.md names the rules, and says what came out.

   L, the rules as listed: who locks bytes next, reuses the journal, publishes, closes or recovers syncs the emptiness.
   F (-DWRITTEN_OUT): ST_OK waits until the zeros have reached the device's cache, without a flush. Each sync of anybody
   flushes the device, so the next commit's first sync makes them durable before its first byte of data.

   LATER, with F: ST_OK comes when the data are written, and not yet synced. The record stays, until its handle settles it:
   at close, or where its next transaction meets it. Another handle's transaction on the same bytes recovers it. */
#ifndef TXNS0
#define TXNS0 2
#endif
#ifndef TXNS1
#define TXNS1 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#define JOURNALS 3
#ifdef WITH_EIO
#define DIFFER false /* all change tensor 0 */
#else
#define DIFFER true
#endif
#define bit(x) (1 << (x))

/* `now` in the page cache; `may`: what the disk may hold after a power cut; `dev`: the same after a flush. */
typedef Sector { byte now; byte may; byte dev }
inline put(s, v) { s.now = v; s.may = s.may | bit(v); s.dev = s.dev | bit(v) }
inline sync(s) { s.dev = bit(s.now); s.may = s.dev }
inline lose_cache(s) {
  if
  :: s.may & 1 -> s.now = 0
  :: s.may & 2 -> s.now = 1
  :: s.may & 4 -> s.now = 2
  :: s.may & 8 -> s.now = 3
  :: s.may & 16 -> s.now = 4
  fi;
  s.may = bit(s.now); s.dev = s.may
}
#ifdef WRITTEN_OUT
#define FLUSH record[0].may = record[0].dev; record[1].may = record[1].dev; record[2].may = record[2].dev
#else
#define FLUSH skip
#endif

Sector tensor[4];        /* two of inode 0, two of inode 1 */
Sector inode;            /* which the name leads to */
Sector record[JOURNALS]; /* 0: zeros; else the transaction that the record is of */
Sector body[JOURNALS];   /* payload and manifest: of which transaction; 0: torn */
Sector name[JOURNALS];
byte copy[JOURNALS];     /* the last record's copy */
bool excl[JOURNALS], shared[JOURNALS]; /* the journal's lock */
bool pending[JOURNALS];  /* emptied, and its handle does not know that this is durable */
bool lost[JOURNALS], seen[JOURNALS];   /* a write-back of the first sector failed; somebody was told */

byte mask[5], value[5], old[10], on[5]; /* of each transaction: what its body says */
byte ids;
byte owner[2], whole;
#ifdef LATER
bool later[JOURNALS];  /* its record waits to be settled */
byte header;           /* locked shared, by the handles that settle */
#define HEADER_IS_FREE (header == 0)
#else
#define HEADER_IS_FREE true
#endif
bool up = true;
byte kills = KILLS, cuts = CUTS, running, finished;
#ifdef WITH_EIO
bool eio = true;
#endif
byte truth[2];
bool open[5];

#include "two_syncs_rules.pml"

inline unlock(me) {
  d_step {
    if :: whole == me + 1 -> whole = 0 :: else fi;
    if :: owner[0] == me + 1 -> owner[0] = 0 :: else fi;
    if :: owner[1] == me + 1 -> owner[1] = 0 :: else fi
  }
}
inline take(t) {
  if
  :: atomic { touches(id, t) && owner[t] == 0 && whole == 0 -> owner[t] = me + 1 }
  :: !touches(id, t)
  fi
}

proctype handle(byte me; byte txns) {
  byte i, j, k, id;
  bool hot, io, publishes, meets;
  {
    do
    :: txns == 0 -> break
    :: txns > 0 ->
      atomic {
        may_die;
        txns--; ids++; id = ids;
        if :: me == 0 -> j = 0 :: me == 0 && txns < TXNS0 - 1 -> j = 1 :: me == 1 -> j = 2 fi
      }
#if defined(LATER) && !defined(REUSES)
      if :: later[j] -> settle(me) :: else fi; /* no other journal is free */
#endif
      atomic {
        may_die;
        /* The first begins with tensor 0, and with value 1. */
        if :: mask[id] = 1 :: id > 1 && DIFFER -> mask[id] = 2 :: id < 3 && DIFFER -> mask[id] = 3 fi;
        if :: id != 2 -> value[id] = 1 :: id > 1 -> value[id] = 0 fi;    /* 0 is what was in the beginning */
#ifdef WITH_PUBLISH
        if :: me == 1 -> publishes = true; mask[id] = 3 :: else fi;
#endif
#ifdef REUSE_SYNCS /* the rule as listed: before the journal is written to */
        if :: pending[j] -> sync(record[j]); FLUSH; pending[j] = false; excl[j] = false :: else fi;
#endif
        put(name[j], 1);
        shared[j] = true;
        put(body[j], 0) /* 1. stage: no lock, and the last manifest may be gone */;
        printf("handle %d stages transaction %d in journal %d: tensors %d, value %d\n", me, id, j, mask[id], value[id])
      }
again:
      /* 2. lock, look */
      if
      :: publishes -> atomic { owner[0] == 0 && owner[1] == 0 && whole == 0 && HEADER_IS_FREE -> whole = me + 1 }
      :: else -> take(0); take(1)
      fi;
      look(me, mask[id]);
#ifdef LATER
      if :: meets -> meets = false; unlock(me); settle(me); goto again :: else fi;
#endif
      if
      :: hot -> unlock(me); recover(me); goto again
      :: else
      fi;
      if :: io -> io = false; unlock(me); goto next :: else fi;
      atomic { may_die; if :: inode.now -> sync(inode) :: else fi } /* make_name_durable: another file than was opened */
      resolve(mask[id]);
      if
      :: publishes ->
        atomic { may_die; put(tensor[2], value[id]); put(tensor[3], value[id]); sync(tensor[2]); sync(tensor[3]); FLUSH }
        atomic { may_die; put(inode, 1); open[id] = true; printf("handle %d renames\n", me) } /* rename */
        atomic { may_die; sync(inode); FLUSH }
      :: else ->
#ifdef REUSE_COVERED /* the record that is written over is on bytes that are locked now; else its emptiness first */
        if
        :: pending[j] && (mask[copy[j]] & ~mask[id]) -> atomic { may_die; sync(record[j]); FLUSH; pending[j] = false }
        :: else
        fi;
#endif
        /* 3. note, 5. write the record */
        atomic {
          may_die;
          on[id] = inode.now; old[2 * id] = T(0).now; old[2 * id + 1] = T(1).now;
          put(body[j], id)
        }
#ifndef NAME_LATE
        atomic { may_die; sync(name[j]) } /* the journal's first time */
#endif
        atomic { may_die; excl[j] = true; copy[j] = id; put(record[j], id); pending[j] = false; open[id] = true;
          printf("handle %d writes record %d\n", me, id);
          if :: lost[j] && !seen[j] -> goto dead :: else -> lost[j] = false fi /* its own sync is told */
        }
        /* 4 and 6. one sync of the journal */
#ifndef NO_FIRST_SYNC
        atomic { may_die; sync(record[j]); sync(body[j]); FLUSH; printf("handle %d has synced record %d\n", me, id) }
#endif
#ifdef NAME_LATE /* the rule as listed: before the first byte of data */
        atomic { may_die; sync(name[j]) }
#endif
        /* 7. and 8. */
        atomic { may_die; if :: touches(id, 0) -> put(T(0), value[id]) :: else fi }
        atomic { may_die; if :: touches(id, 1) -> put(T(1), value[id]) :: else fi }
#ifdef LATER
        later[j] = true
#else
        atomic { may_die; if :: touches(id, 0) -> sync(T(0)) :: else fi; if :: touches(id, 1) -> sync(T(1)) :: else fi; FLUSH }
        /* 9. empty the journal: without a sync */
        atomic { may_die; put(record[j], 0); pending[j] = true; printf("handle %d empties journal %d\n", me, j) }
#endif
#if defined(WRITTEN_OUT) && !defined(LATER)
        atomic { may_die; record[j].dev = 1; pending[j] = false; excl[j] = false }
#endif
      fi;
      /* 10. ST_OK */
      d_step {
        printf("handle %d: ST_OK for %d\n", me, id);
        open[id] = false;
        if :: touches(id, 0) -> truth[0] = value[id] :: else fi;
        if :: touches(id, 1) -> truth[1] = value[id] :: else fi
      }
      unlock(me);
next: skip
    od;
#ifdef LATER
    settle(me);
#endif
    j = 0;
    do /* close */
    :: j == JOURNALS -> break
    :: j < JOURNALS && handle_of(j) == me && name[j].now ->
      atomic {
        may_die;
#ifndef CLOSE_NO_SYNC
        sync(record[j]); FLUSH;
#endif
        pending[j] = false; put(name[j], 0); excl[j] = false; shared[j] = false
      };
      j++
    :: j < JOURNALS && !(handle_of(j) == me && name[j].now) -> j++
    od;
    goto gone;
dead:
    printf("handle %d is killed\n", me);
    unlock(me);
#ifdef LATER
    d_step {
      header = header & ~bit(me);
      for (k : 0 .. JOURNALS - 1) { if :: handle_of(k) == me -> later[k] = false :: else fi }
    };
#endif
    d_step {
      for (k : 0 .. JOURNALS - 1) { if :: handle_of(k) == me -> excl[k] = false; shared[k] = false; pending[k] = false :: else fi }
    };
gone: skip
  } unless { !up };
  d_step { i = 0; j = 0; k = 0; id = 0; hot = false; io = false; running--; finished++ }
}

#if defined(FOREIGN_WRITER) || defined(FOREIGN_REMOVER)
/* After ST_OK, and beside nobody's change. */
#ifdef FOREIGN_WRITER
#define SOMETHING true
#else
#define IS_PARKED(j) (name[j].now && shared[j] && copy[j] && body[j].now == copy[j] && record[j].now == 0)
#define SOMETHING (IS_PARKED(0) || IS_PARKED(2))
#endif
proctype foreign() {
  byte n;
end:
  atomic {
    up && cuts == CUTS && owner[0] == 0 && owner[1] == 0 && whole == 0 && !open[1] && !open[2] && !open[3] && !open[4] && SOMETHING ->
    printf("a foreign program comes by\n");
#ifdef FOREIGN_WRITER /* `cp` in place of another version, and its sync of this file alone */
    put(T(0), 0); sync(T(0)); FLUSH; truth[0] = 0
#else /* a cleaner removes a parked journal */
    if :: IS_PARKED(0) -> put(name[0], 0) :: IS_PARKED(2) -> put(name[2], 0) fi
#endif
  }
}
#endif

proctype judge() {
  byte i, k;
again:
  atomic { up && finished == 2 -> running++ }
  { recover(2); goto done; dead: skip; done: skip } unless { !up };
  d_step { i = 0; k = 0; running-- };
  if :: !up -> goto again :: up fi
}

proctype power() {
  byte n;
end:
  do
#ifdef WITH_EIO
  :: atomic { up && eio && pending[0] && !lost[0] -> eio = false; lost[0] = true; seen[0] = false }
#endif
  :: atomic { cuts > 0 && up -> cuts--; up = false; printf("power cut\n"); whole = 0; owner[0] = 0; owner[1] = 0 }
    atomic {
      running == 0 ->
      for (n : 0 .. 3) { lose_cache(tensor[n]) };
      lose_cache(inode);
      for (n : 0 .. JOURNALS - 1) {
        lose_cache(record[n]); lose_cache(body[n]); lose_cache(name[n]);
        excl[n] = false; shared[n] = false; pending[n] = false; lost[n] = false;
#ifdef LATER
        later[n] = false; header = 0
#endif
      };
      printf("the disk has: tensors %d %d | %d %d, inode %d; records %d %d %d, bodies %d %d %d\n", tensor[0].now, tensor[1].now,
        tensor[2].now, tensor[3].now, inode.now, record[0].now, record[1].now, record[2].now, body[0].now, body[1].now, body[2].now);
      n = 0; up = true
    }
  od
}

init {
  byte n;
  atomic {
    inode.may = 1; inode.dev = 1;
    for (n : 0 .. 3) { tensor[n].may = 1; tensor[n].dev = 1 };
    for (n : 0 .. JOURNALS - 1) {
      record[n].may = 1; record[n].dev = 1; body[n].may = 1; body[n].dev = 1; name[n].may = 1; name[n].dev = 1
    };
    running = 2;
    run handle(0, TXNS0); run handle(1, TXNS1); run judge(); run power();
#if defined(FOREIGN_WRITER) || defined(FOREIGN_REMOVER)
    run foreign()
#endif
  }
}
