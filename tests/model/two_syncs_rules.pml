/* The look after locking and recovery, for two_syncs.pml, with the rules that are in question. */
#define T(t) tensor[2 * inode.now + (t)]
#define touches(id, t) (mask[id] & bit(t))
#define may_die if :: true :: kills > 0 -> kills--; goto dead fi
#define HAS_RECORD(i) (name[i].now && record[i].now != 0 && body[i].now == record[i].now)
#define IS_THERE(k) ((!touches(k, 0) || T(0).now == value[k]) && (!touches(k, 1) || T(1).now == value[k]))
#ifdef LATER /* recovery reads the payload when it writes the data */
#define HAS_BODY assert(body[i].now == k)
#else
#define HAS_BODY skip
#endif
#define handle_of(j) (j == 2 -> 1 : 0)

inline resolve(set) {
  d_step {
    for (k : 1 .. 4) {
      if
      :: open[k] && (mask[k] & (set)) ->
        if
        :: IS_THERE(k) ->
          if :: touches(k, 0) -> truth[0] = value[k] :: else fi;
          if :: touches(k, 1) -> truth[1] = value[k] :: else fi
        :: else ->
          assert(!touches(k, 0) || T(0).now == truth[0]);
          assert(!touches(k, 1) || T(1).now == truth[1])
        fi;
        open[k] = false
      :: else
      fi
    }
    k = 0;
    assert(!((set) & 1) || T(0).now == truth[0]); /* an acknowledged change is there */
    assert(!((set) & 2) || T(1).now == truth[1])
  }
}

#ifdef LATER
/* All that waits of this handle; `i` goes through its journals. The data lie where the name leads: after a publish no
   record is left. */
inline settle(me) {
#ifndef NO_HEADER
  atomic { whole == 0 -> header = header | bit(me) }
#endif
#ifndef NO_DATA_SYNC
  atomic { may_die; sync(T(0)); sync(T(1)); FLUSH }
#endif
  i = 0;
  do
  :: i == JOURNALS -> break
  :: i < JOURNALS && handle_of(i) == me && later[i] ->
    if
    :: name[i].now ->
      atomic { may_die; put(record[i], 0); printf("handle %d settles journal %d\n", me, i) }
      atomic { may_die; record[i].dev = 1; excl[i] = false }
    :: else -> excl[i] = false; shared[i] = false /* another has recovered it */
    fi;
    later[i] = false;
    i++
  :: i < JOURNALS && !(handle_of(i) == me && later[i]) -> i++
  od;
  i = 0;
  header = header & ~bit(me)
}
#endif

inline recover(me) {
  atomic { owner[0] == 0 && owner[1] == 0 && whole == 0 && HEADER_IS_FREE -> whole = me + 1 }
  i = 0;
#if defined(WRITTEN_OUT) && !defined(ONE_PASS)
#if !defined(NO_SYNC_BEFORE) && !defined(REPEATS)
  atomic { may_die; sync(T(0)); sync(T(1)); FLUSH } /* a dead writer's bytes may be in the cache alone */
#endif
  do /* first, records whose bytes are all there: they have nothing to repeat */
  :: i == JOURNALS -> break
  :: i < JOURNALS && HAS_RECORD(i) && IS_THERE(record[i].now) ->
#ifdef REPEATS /* what the code does: as in the second round */
    d_step { k = record[i].now }
    atomic { may_die; put(record[i], k); sync(record[i]); sync(body[i]); FLUSH }
    atomic { may_die; HAS_BODY; if :: touches(k, 0) -> put(T(0), value[k]) :: else fi }
    atomic { may_die; if :: touches(k, 1) -> put(T(1), value[k]) :: else fi; k = 0 }
    atomic { may_die; sync(T(0)); sync(T(1)); FLUSH }
#endif
    atomic { may_die; printf("recovery drops record %d\n", record[i].now); put(record[i], 0) }
    atomic { may_die; sync(record[i]); FLUSH }
    i++
  :: i < JOURNALS && !(HAS_RECORD(i) && IS_THERE(record[i].now)) -> i++
  od;
  i = 0;
#endif
  do
  :: i == JOURNALS -> break
  :: i < JOURNALS && !name[i].now -> i++
  :: i < JOURNALS && HAS_RECORD(i) ->
    d_step {
      k = record[i].now;
      printf("recovery finds record %d in journal %d\n", k, i);
      assert(on[k] == inode.now); /* else: the journal of another file */
      assert(!touches(k, 0) || T(0).now == value[k] || T(0).now == old[2 * k]); /* else: foreign */
      assert(!touches(k, 1) || T(1).now == value[k] || T(1).now == old[2 * k + 1])
    }
    atomic { may_die; put(record[i], k); sync(record[i]); sync(body[i]); FLUSH } /* confirm */
    atomic { may_die; HAS_BODY; if :: touches(k, 0) -> put(T(0), value[k]) :: else fi }
    atomic { may_die; if :: touches(k, 1) -> put(T(1), value[k]) :: else fi; k = 0 }
    atomic { may_die; sync(T(0)); sync(T(1)); FLUSH }
    atomic { may_die; put(record[i], 0) }
    atomic { may_die; sync(record[i]); FLUSH; put(name[i], 0); lost[i] = false }
    i++
  :: i < JOURNALS && name[i].now && !HAS_RECORD(i) ->
    /* Empty, or a record whose hash is wrong: dropped, unless somebody holds it. */
    if
    :: !excl[i] && !shared[i] ->
      atomic { may_die; put(record[i], 0) }
      atomic { may_die; sync(record[i]); FLUSH; put(name[i], 0); lost[i] = false }
    :: else
    fi;
    i++
  od;
  if /* of a rename that is not durable nobody has promised anything */
  :: inode.may == bit(inode.now) -> resolve(3)
  :: else
  fi;
  d_step { i = 0; whole = 0 }
}

/* A second opener's sync of another's journal. `io`: it was told of a failed write-back, and its commit fails. */
inline sync_other(i) {
#ifdef TOUCH
  put(record[i], record[i].now); lost[i] = false; /* a byte that is zero in zeros and in each record */
#endif
  if
  :: lost[i] && !seen[i] -> seen[i] = true; io = true
  :: lost[i] && seen[i] -> skip /* and ok is answered: the page is clean, and the error is consumed */
  :: !lost[i] -> sync(record[i]); sync(body[i]); FLUSH
  fi
}

/* settle_hot_journals, with the rules of L for what is pending. */
inline look(me, set) {
  d_step { i = 0; hot = false; meets = false }
  do
  :: i == JOURNALS -> break
  :: i < JOURNALS && (handle_of(i) == me || !name[i].now) ->
#if defined(LATER) && !defined(NO_SETTLE)
    if :: handle_of(i) == me && later[i] && (mask[record[i].now] & (set)) -> meets = true :: else fi;
#endif
#ifndef NO_OWN_POOL
    if
    :: handle_of(i) == me && i != j && pending[i] && (mask[copy[i]] & (set)) ->
      atomic { may_die; sync(record[i]); FLUSH; pending[i] = false; excl[i] = false }
    :: else
    fi;
#endif
    i++
  :: i < JOURNALS && handle_of(i) != me && name[i].now ->
    atomic {
      may_die;
      if
      :: record[i].now != 0 && body[i].now == record[i].now ->
        if
#ifdef TRUSTS_THE_LOCK
        :: !excl[i] && !shared[i] -> hot = true
#else
        :: (!excl[i] && !shared[i]) || (mask[record[i].now] & (set)) -> hot = true
#endif
        :: else
        fi
      :: else ->
        if
        :: !excl[i] && !shared[i] -> put(record[i], 0); sync(record[i]); FLUSH; put(name[i], 0); lost[i] = false
#ifndef NO_NEXT_LOCKER
#ifdef TRUSTS_MANIFEST /* of a journal that its handle is staging to */
        :: excl[i] && body[i].now == copy[i] && (mask[copy[i]] & (set)) -> sync_other(i)
#else
        :: excl[i] && (body[i].now != copy[i] || (mask[copy[i]] & (set))) -> sync_other(i)
#endif
#endif
        :: else
        fi
      fi
    };
    i++
  od;
  i = 0
}
