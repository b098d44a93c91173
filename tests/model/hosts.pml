/* Two hosts and a server. Two tensors lie in one page. A host's page cache may be stale for ever, and its locks may be
   lost while it is frozen, without a word. A host is frozen wherever the other host's steps come in between.
   The rules: what decides is read past the cache; locks are rounded out to pages; a writer asks, right before its record
   and again right before its data, whether it was fenced off. README.md says what remains. */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define JUDGE 2
#define NOBODY 0

byte server[2];              /* the page, as the server has it */
bool cached[2];              /* has the host a copy of the page? */
byte cache[4];               /* host, tensor */
bool record[2], linked[2];   /* of each host's journal, on the server; is it in the folder? */
bool knows[2], was[2];       /* what a host's cache says of the other's record */
byte tensor_of[2], value[2], old[2]; /* what the journal says */
byte owner[2], whole, journal_lock[2]; /* holder + 1 */
byte epoch;                  /* lies in the journal folder */
bool lost[2];                /* the server has dropped this host's locks since it took them */
bool in_flight[2];           /* from the last question to the data's sync */
byte kills = KILLS, losses = LOSSES, finished;

byte truth[2];
bool open[2], is_new[2];

#define may_die if :: true :: kills > 0 -> kills--; goto dead fi

/* Locks are on pages, or only on the tensors' bytes. */
#ifdef BYTE_LOCKS
#define PLACE(t) (t)
#else
#define PLACE(t) 0
#endif
/* Was this writer fenced off? */
#ifdef EPOCH_ONLY
#define FENCED (epoch != seen)
#else
#ifdef LINK_ONLY
#define FENCED (!linked[me])
#else
#define FENCED (epoch != seen || !linked[me])
#endif
#endif
#ifdef LINK_ONLY
#define FENCED_PARKED (!linked[me])
#else
#define FENCED_PARKED (epoch != seen)
#endif
/* What a server does that ties requests to locks. */
#ifdef LOCKED_IO
#define REFUSED(h) lost[h]
#else
#define REFUSED(h) false
#endif

/* May the server give this host's lost locks to another? Not before its last request has ended, unless a request without
   a lock is refused anyway. */
#if defined(IN_FLIGHT) || defined(LOCKED_IO)
#define LANDED(h) true
#else
#define LANDED(h) !(lost[h] && in_flight[h])
#endif

inline resolve(set) {
  d_step {
    for (k : 0 .. 1) {
      if
      :: open[k] && ((set) & (1 << PLACE(tensor_of[k]))) ->
        is_new[k] = server[tensor_of[k]] == value[k];
        if :: is_new[k] -> truth[tensor_of[k]] = value[k] :: else fi;
        open[k] = false
      :: else
      fi
    }
    k = 0;
    assert(server[0] == truth[0] || !((set) & (1 << PLACE(0)))); /* an acknowledged change is there */
    assert(server[1] == truth[1] || !((set) & (1 << PLACE(1))))
  }
}

inline release(h) {
  d_step {
    if :: whole == h + 1 -> whole = NOBODY :: else fi;
    if :: owner[0] == h + 1 -> owner[0] = NOBODY :: else fi;
    if :: owner[1] == h + 1 -> owner[1] = NOBODY :: else fi;
  }
}

inline recover(me) {
  atomic { owner[0] == NOBODY && owner[1] == NOBODY && whole == NOBODY && (me == 0 || LANDED(0)) && (me == 1 || LANDED(1)) -> whole = me + 1; if :: me < 2 -> lost[me] = false :: else fi }
  atomic { epoch++; seen = epoch; printf("host %d recovers; epoch %d\n", me, epoch) }
  i = 0;
  do
  :: i == 2 -> break
  :: i < 2 && linked[i] && record[i] ->
    d_step { printf("host %d finds the record of host %d: tensor %d, %d to %d; it is %d\n", me, i, tensor_of[i], old[i], value[i], server[tensor_of[i]]); assert(server[tensor_of[i]] == value[i] || server[tensor_of[i]] == old[i]) } /* else: foreign */
    atomic { /* a recoverer may lose its lock, too: asked past the cache, then in flight */
      may_die;
      if
      :: epoch != seen || (me < 2 && (lost[me] && REFUSED(me))) || !linked[i] -> break
      :: else -> if :: me < 2 -> in_flight[me] = true :: else fi
      fi
    }
    atomic { may_die; if :: me == JUDGE || !REFUSED(me) -> server[tensor_of[i]] = value[i] :: else fi; if :: me < 2 -> in_flight[me] = false :: else fi }
    atomic { may_die; if :: epoch == seen -> record[i] = false; linked[i] = false :: else fi };
    i++
  :: i < 2 && linked[i] && !record[i] && journal_lock[i] == NOBODY -> atomic { may_die; linked[i] = false }; i++
  :: i < 2 && (!linked[i] || (!record[i] && journal_lock[i] != NOBODY)) -> i++
  od;
  atomic { if :: whole == me + 1 -> resolve(3) :: else fi };
  i = 0;
  release(me)
}

proctype host(byte me; byte txns) {
  byte i, k, seen, other = 1 - me;
  bool hot, again_used;
  do
  :: txns == 0 -> break
  :: txns > 0 ->
#ifndef REUSED_BLINDLY
    /* A recoverer may be reading the parked journal, if its lock was lost. */
    atomic { if :: again_used && FENCED_PARKED -> goto fenced :: else -> again_used = true fi }
#endif
    atomic { /* 1. stage */
      may_die;
      txns--;
      if :: tensor_of[me] = 0 :: tensor_of[me] = 1 fi;
      if :: value[me] = 1 + me :: me == 1 -> value[me] = 0 fi;
      linked[me] = true; record[me] = false; journal_lock[me] = me + 1
    }
again:
    atomic { /* 2. lock */
      whole == NOBODY && owner[PLACE(tensor_of[me])] == NOBODY && LANDED(other) ->
      owner[PLACE(tensor_of[me])] = me + 1;
      lost[me] = false; journal_lock[me] = me + 1; seen = epoch;
      if :: !linked[me] -> linked[me] = true; record[me] = false :: else fi; /* restage_if_gone */
      printf("host %d locks tensor %d for value %d; epoch %d\n", me, tensor_of[me], value[me], seen)
    }
    atomic { /* look, past the cache */
      may_die;
#ifdef STALE_LOOK
      if :: !knows[me] -> knows[me] = true; was[me] = record[other] :: else fi;
      hot = linked[other] && was[me];
#else
      hot = linked[other] && record[other];
#endif
      if
      :: hot && (journal_lock[other] == NOBODY || PLACE(tensor_of[other]) == PLACE(tensor_of[me])) -> skip
      :: else -> hot = false
      fi;
      if
      :: !hot && linked[other] && !record[other] && journal_lock[other] == NOBODY -> linked[other] = false /* settle_idle */
      :: else
      fi
    }
    if
    :: hot -> release(me); hot = false; recover(me); goto again
    :: else
    fi;
    atomic { if :: !lost[me] -> resolve(1 << PLACE(tensor_of[me])) :: else fi }
    atomic { /* 3. note the old bytes */
      may_die;
#ifdef STALE_READ
      if :: !cached[me] -> cached[me] = true; cache[2 * me] = server[0]; cache[2 * me + 1] = server[1] :: else fi;
#else
      cache[2 * me] = server[0]; cache[2 * me + 1] = server[1];
#endif
      old[me] = cache[2 * me + tensor_of[me]]
    }
#ifndef NO_FENCE
    atomic { may_die; if :: FENCED -> goto fenced :: else fi }
#endif
    /* 5. and 6. the record, durable: into a file that may have no name by now */
    atomic { may_die; if :: REFUSED(me) -> goto fenced :: else -> record[me] = true; open[me] = linked[me]; printf("host %d writes its record; in the folder: %d\n", me, linked[me]) fi }
#if !defined(NO_FENCE) && !defined(NO_CHECK_AFTER)
    atomic { may_die; if :: FENCED -> goto fenced :: else fi; in_flight[me] = true }
#else
    atomic { in_flight[me] = true }
#endif
    /* 7. write */
    atomic { may_die; cache[2 * me + tensor_of[me]] = value[me] }
    atomic { /* 8. and sync: the whole page goes to the server */
      may_die;
      if :: REFUSED(me) -> goto fenced :: else fi;
      server[0] = cache[2 * me]; server[1] = cache[2 * me + 1];
      in_flight[me] = false;
      printf("host %d has written: %d %d\n", me, server[0], server[1])
    }
    atomic { may_die; record[me] = false } /* 9. */
    d_step { /* 10. ST_OK */
      printf("host %d: ST_OK\n", me);
      if
      :: open[me] -> open[me] = false; truth[tensor_of[me]] = value[me]
      :: else -> assert(is_new[me]) /* somebody has finished it for us, and may have gone on */
      fi;
      is_new[me] = false
    }
    release(me)
  od;
  goto gone;
fenced:
  printf("host %d is fenced off\n", me); /* ST_E_NEEDS_RECOVERY; the handle is poisoned */
dead:
  printf("host %d ends\n", me);
  release(me);
  journal_lock[me] = NOBODY;
gone: /* close */
  atomic { if :: journal_lock[me] == me + 1 -> linked[me] = false; journal_lock[me] = NOBODY :: else fi }
  atomic { in_flight[me] = false; i = 0; k = 0; seen = 0; again_used = false; finished++ }
}

/* The server drops all locks of a host that it does not hear of. */
proctype server_timer() {
end:
  if
  :: atomic { losses > 0 -> losses--; lost[0] = true; printf("host 0 loses its locks\n"); release(0); journal_lock[0] = NOBODY }
  :: atomic { losses > 0 -> losses--; lost[1] = true; printf("host 1 loses its locks\n"); release(1); journal_lock[1] = NOBODY }
  fi
}

proctype judge() {
  byte i, k, seen;
  finished == 2 -> kills = 0;
  recover(JUDGE);
dead: skip
}

init { atomic { run host(0, 1); run host(1, 2); run judge(); run server_timer() } }
