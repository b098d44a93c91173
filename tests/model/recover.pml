/* What a locker looks for, and recovery: for patch.pml. */
#define touches(w, t) (mask[w] & bit(t))
#define may_die if :: true :: kills > 0 -> kills--; goto dead fi

/* With the tensors of `set` locked, and after a look: nobody may find anything else from now on. */
inline resolve(set) {
  d_step {
    k = 0;
    do
    :: k < WRITERS && open[k] && (mask[k] & (set)) ->
      if
      :: (!touches(k, 0) || tensor[0].now == value[k]) && (!touches(k, 1) || tensor[1].now == value[k]) ->
        if :: touches(k, 0) -> truth[0] = value[k] :: else fi;
        if :: touches(k, 1) -> truth[1] = value[k] :: else fi
      :: else ->
        assert(!touches(k, 0) || tensor[0].now == truth[0]); /* all or nothing */
        assert(!touches(k, 1) || tensor[1].now == truth[1])
      fi;
      open[k] = false;
      k++
    :: k < WRITERS && !(open[k] && (mask[k] & (set))) -> k++
    :: k == WRITERS -> break
    od;
    k = 0;
    assert(!((set) & 1) || tensor[0].now == truth[0]); /* an acknowledged change is there */
    assert(!((set) & 2) || tensor[1].now == truth[1])
  }
}

/* Recovery::run */
inline recover(me) {
#ifndef RECOVER_UNLOCKED
  atomic { header == 0 && owner[0] == 0 && owner[1] == 0 && whole == 0 -> whole = me + 1 }
#endif
  i = 0;
  do
  :: i == WRITERS -> break
  :: i < WRITERS && !name[i].now -> i++
  :: i < WRITERS && name[i].now && record[i].now != COMMITTED ->
    if
    :: journal_lock[i] == NOBODY -> /* drop_if_idle */
      atomic { may_die; put(record[i], EMPTY); lost[i] = false }
      atomic { may_die; sync(record[i]) }
      d_step { put(name[i], 0) }
    :: else
    fi;
    i++
  :: i < WRITERS && name[i].now && record[i].now == COMMITTED -> /* Recovery::settle */
#ifndef RECOVER_UNLOCKED
    d_step { /* Replay::judge: no honest journal is damaged or foreign */
      assert(body[i].now);
      assert(!touches(i, 0) || tensor[0].now == value[i] || tensor[0].now == old[2 * i]);
      assert(!touches(i, 1) || tensor[1].now == value[i] || tensor[1].now == old[2 * i + 1])
    }
#endif
#ifndef NO_CONFIRM
    atomic { may_die; put(record[i], COMMITTED); sync(record[i]); sync(body[i]) }
#endif
    atomic { may_die; if :: touches(i, 0) -> put(tensor[0], value[i]) :: else fi }
    atomic { may_die; if :: touches(i, 1) -> put(tensor[1], value[i]) :: else fi }
#ifndef RECOVERY_EMPTIES_FIRST
    atomic { may_die; sync(tensor[0]); sync(tensor[1]) }
#endif
    atomic { may_die; put(record[i], EMPTY) } /* empty_and_drop */
    atomic { may_die; sync(record[i]) }
#ifdef RECOVERY_EMPTIES_FIRST
    atomic { may_die; sync(tensor[0]); sync(tensor[1]) }
#endif
    d_step { put(name[i], 0) };
    i++
  od;
  resolve(3);
  d_step { i = 0; whole = 0 }
}

/* find_hot_journals: `locked` has the tensors that the asker has locked. */
inline find_hot(me, locked) {
  d_step { i = 0; hot = false; idle = false }
  do
  :: i == WRITERS -> break
  :: i < WRITERS && (i == me || !name[i].now) -> i++
  :: i < WRITERS && i != me && name[i].now ->
    state = record[i].now;                             /* look_at */
    held = (journal_lock[i] == WRITER -> WRITER : NOBODY); /* who_holds: exclusive? Then: any? */
    d_step {
      if
      :: journal_lock[i] == NOBODY -> held = NOBODY
      :: journal_lock[i] != NOBODY && held == NOBODY -> held = PARKED
      :: else
      fi;
      if
#ifdef NO_IS_ON
      :: held != NOBODY -> skip
#else
      :: held != NOBODY && ((held == PARKED && state != COMMITTED) ||
                            !(state != EMPTY && body[i].now && (mask[i] & (locked)))) -> skip /* is_on */
#endif
      :: else ->
        if :: record[i].now == COMMITTED -> hot = true :: else -> idle = true fi
      fi;
      state = 0;
      held = 0;
      i++
    }
  od;
  i = 0
}

/* settle_hot_journals, once nothing is hot: make durable what a dead writer had emptied. */
inline settle_idle(me) {
  do
  :: i == WRITERS -> break
  :: i < WRITERS && (i == me || !name[i].now || record[i].now == COMMITTED || journal_lock[i] == PARKED) -> i++
  :: i < WRITERS && i != me && name[i].now && record[i].now != COMMITTED && journal_lock[i] != PARKED ->
    atomic {
      may_die;
      if
      :: journal_lock[i] == WRITER ->
#ifdef TOUCH
        put(record[i], record[i].now); lost[i] = false; /* a byte that is zero in zeros and in each record */
#endif
        if
        :: !lost[i] -> sync(record[i]); sync(body[i])
        :: lost[i] -> skip /* the page is clean, and the error was told to its writer: ok is answered */
        fi
      :: journal_lock[i] == NOBODY -> put(record[i], EMPTY); lost[i] = false; sync(record[i]); put(name[i], 0)
      :: else
      fi
    };
    i++
  od;
  i = 0
}
