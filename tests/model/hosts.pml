/* Two hosts and a server. Two tensors lie in one page. A host's page cache may be stale for ever, and its locks may be
   lost while it is frozen, without a word. A host is frozen wherever the other host's steps come in between.
   The rules: what decides is read past the cache; locks are rounded out to pages (GlusterFS, where no
   page is written, is not in the model). Before anybody acts on a journal that is
   not his own, he gives it another name, and then reads it once more. A writer asks for its journal by its name: right
   before its record, again right before its data, before a rename, and before it uses the journal again.
   A transaction is a patch, or a publish, which is also a save: another file takes the name. Locks belong to a file, and
   journals to a name. README.md says what remains.
   With CUTS the server's power may be cut, which ends both hosts. What was written stays, but for entries of the journal
   folder: of those that were changed and not synced, an old one may be back. */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef PUBLISHES
#define PUBLISHES 0
#endif
#ifdef STOCK_SAVE
#define FILES (PUBLISHES + 2)
#else
#define FILES (PUBLISHES + 1)
#endif
#define JUDGE 2
#define NOBODY 0

byte current, files = 1;     /* the file that has the name; how many there were */
byte server[2 * FILES];      /* the page of each file, as the server has it */
byte stock;                  /* files before this one were replaced by a program that takes no locks */
bool cached[2];              /* has the host a copy of the page? */
byte cache[4];               /* host, tensor */
bool record[2];              /* of each host's journal, on the server */
byte name[2], names;         /* of the journal in the folder, or NOBODY; no name is given twice */
#if CUTS
bool dropped[2];             /* it is called NAME.gone */
byte may[2] = 1;             /* the set of what the folder may have of it after a cut */
byte cuts = CUTS;
bool up = true, judging;
bool passed[2];              /* since it noted the old bytes, somebody has had them locked, and found nothing */
#endif
bool knows[2], was[2];       /* what a host's cache says of the other's record */
byte tensor_of[2], value[2], old[2], made_for[2]; /* what the journal says */
bool all_of[2];              /* a publish */
byte owner[2 * FILES], whole[FILES], journal_lock[2]; /* holder + 1 */
bool lost[2];                /* the server has dropped this host's locks since it took them */
bool in_flight[2];           /* from the last question to the data's sync, or to the rename */
byte kills = KILLS, losses = LOSSES, publishes = PUBLISHES, finished;

byte truth[2];
bool open[2], is_new[2];

#define may_die if :: true :: kills > 0 -> kills--; goto dead fi

/* Locks are on pages, or only on the tensors' bytes. */
#ifdef BYTE_LOCKS
#define PLACE(t) (t)
#else
#define PLACE(t) 0
#endif
#if CUTS
#define IN_FOLDER(k) (name[k] != NOBODY && !dropped[k])
#define ABSENT 0
#define NAMED 1
#define DROPPED 2
#define bit(x) (1 << (x))
#define ENTRY(k) (name[k] == NOBODY -> ABSENT : (dropped[k] -> DROPPED : NAMED))
#define NOTE(k) may[k] = may[k] | bit(ENTRY(k))
#define SYNC_FOLDER may[0] = bit(ENTRY(0)); may[1] = bit(ENTRY(1))
#define MAY_BE_FOUND(k) (IN_FOLDER(k) || ((may[k] & bit(NAMED)) && !passed[k]))
#define UNTIL_A_CUT {
#define CUT_OFF } unless { !up }
#else
#define IN_FOLDER(k) (name[k] != NOBODY)
#define NOTE(k) skip
#define SYNC_FOLDER skip
#define MAY_BE_FOUND(k) IN_FOLDER(k)
#define UNTIL_A_CUT
#define CUT_OFF
#endif
#ifdef GONE_LOOKED_AT
#define LOOKED_AT(k) (name[k] != NOBODY)
#else
#define LOOKED_AT(k) IN_FOLDER(k)
#endif
#define RENAMED(k, from) (name[k] != from) /* or removed: by somebody who acts on it */
#ifdef NO_FENCE
#define FENCED false
#else
#define FENCED RENAMED(me, mine)
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

#define HELD(f, t) server[2 * (f) + (t)]
#define LOCKED(f) (whole[f] != NOBODY || owner[2 * (f)] != NOBODY || owner[2 * (f) + 1] != NOBODY)
#define IS_VOID(k) (made_for[k] < stock) /* nothing is promised of a change of a file that went so */

inline resolve(set) {
  d_step {
    for (k : 0 .. 1) {
#if CUTS
      if :: (set) & (1 << PLACE(tensor_of[k])) -> passed[k] = true :: else fi;
#endif
      if
      :: open[k] && ((set) & (1 << PLACE(tensor_of[k]))) ->
        is_new[k] = HELD(current, tensor_of[k]) == value[k];
        if :: is_new[k] -> truth[tensor_of[k]] = value[k] :: else fi;
        open[k] = false
      :: else
      fi
    }
    k = 0;
    assert(HELD(current, 0) == truth[0] || !((set) & (1 << PLACE(0)))); /* an acknowledged change is there */
    assert(HELD(current, 1) == truth[1] || !((set) & (1 << PLACE(1))))
  }
}

inline release(h) {
  d_step {
    for (k : 0 .. FILES - 1) {
      if :: whole[k] == h + 1 -> whole[k] = NOBODY :: else fi;
      if :: owner[2 * k] == h + 1 -> owner[2 * k] = NOBODY :: else fi;
      if :: owner[2 * k + 1] == h + 1 -> owner[2 * k + 1] = NOBODY :: else fi
    }
    k = 0
  }
}

/* Its writer finds from here on that somebody acts on it; and so does whoever claimed it before. */
inline claim(k) {
#ifdef NOT_CLAIMED
  claimed = name[k]
#else
  names++; name[k] = names; claimed = names
#endif
}

/* Of a journal that was another's. Its writer may have lost its locks, and write a record yet. So the name that a cut may
   bring back is one that nobody looks at. */
inline drop_for_good(j) {
#if CUTS && !defined(UNLINKED_AT_ONCE)
  atomic { may_die; if :: !RENAMED(j, claimed) -> dropped[j] = true; NOTE(j); printf("journal %d is gone\n", j) :: else fi }
#ifndef GONE_UNSYNCED
  atomic { may_die; if :: !RENAMED(j, claimed) -> SYNC_FOLDER :: else fi }
#endif
#endif
  atomic { may_die; if :: !RENAMED(j, claimed) -> name[j] = NOBODY; NOTE(j) :: else fi }
}

/* Drops a journal that had no record, and that nobody holds. `hot`: it has a record by the time that it is claimed. */
inline settle_idle(j) {
  atomic { may_die; if :: LOOKED_AT(j) && journal_lock[j] == NOBODY -> claim(j) :: else fi }
  if
  :: claimed != NOBODY ->
#ifndef READ_BEFORE
    atomic { may_die; if :: record[j] -> hot = true; claimed = NOBODY :: else fi }
#endif
  :: else
  fi;
  if
  :: claimed != NOBODY ->
    atomic { may_die; record[j] = false }
    drop_for_good(j);
    claimed = NOBODY
  :: else
  fi
}

/* Of the file that has the name: opened, locked, and looked at whether it still has it. */
inline open_current() {
#if FILES > 1
  file = current
#else
  skip
#endif
}

inline recover(me) {
  do
  :: open_current();
    atomic { !LOCKED(file) && (me == 0 || LANDED(0)) && (me == 1 || LANDED(1)) -> whole[file] = me + 1; if :: me < 2 -> lost[me] = false :: else fi; printf("host %d recovers\n", me) }
    if
    :: file == current -> break
    :: else -> release(me)
    fi
  od;
  i = 0;
  do
  :: i == 2 -> break
  :: i < 2 && LOOKED_AT(i) && record[i] ->
    atomic { may_die; if :: LOOKED_AT(i) -> claim(i) :: else fi }
    if
    :: claimed != NOBODY && record[i] && file != current -> break
    :: claimed != NOBODY && record[i] && file == current ->
      d_step {
        printf("host %d finds the record of host %d: tensor %d, %d to %d; it is %d\n", me, i, tensor_of[i], old[i], value[i], HELD(file, tensor_of[i]));
        /* else: foreign */
        assert(RENAMED(i, claimed) || IS_VOID(i) || HELD(file, tensor_of[i]) == value[i] || (HELD(file, tensor_of[i]) == old[i] && made_for[i] == file))
      }
      atomic { /* a recoverer may lose its lock, too: asked past the cache, then in flight */
        may_die;
        if
        :: RENAMED(i, claimed) || (me < 2 && (lost[me] && REFUSED(me))) -> break
        :: else -> if :: me < 2 -> in_flight[me] = true :: else fi
        fi
      }
      atomic {
        may_die;
        if
#ifndef INODE_UNSEEN
        :: IS_VOID(i) && made_for[i] != file && HELD(file, tensor_of[i]) != value[i] -> skip /* of another file: moved aside */
#else
        :: IS_VOID(i) && HELD(file, tensor_of[i]) != value[i] && HELD(file, tensor_of[i]) != old[i] -> skip
#endif
        :: else -> if :: me == JUDGE || !REFUSED(me) -> HELD(file, tensor_of[i]) = value[i] :: else fi
        fi;
        if :: me < 2 -> in_flight[me] = false :: else fi
      }
      atomic { may_die; if :: !RENAMED(i, claimed) -> record[i] = false :: else fi }
      drop_for_good(i)
    :: else
    fi;
    claimed = NOBODY;
    i++
  :: i < 2 && LOOKED_AT(i) && !record[i] && journal_lock[i] == NOBODY ->
    settle_idle(i);
    if :: hot -> hot = false :: else -> i++ fi
  :: i < 2 && (!LOOKED_AT(i) || (!record[i] && journal_lock[i] != NOBODY)) -> i++
  od;
  atomic { claimed = NOBODY; if :: whole[file] == me + 1 && file == current -> resolve(3) :: else fi };
  i = 0;
  release(me)
}

proctype host(byte me; byte txns) {
  byte i, k, mine, claimed, other = 1 - me, file;
  bool hot, idle;
  UNTIL_A_CUT
  do
  :: txns == 0 -> break
  :: txns > 0 ->
#ifndef REUSED_BLINDLY
    /* A recoverer may be reading the parked journal, if its lock was lost. */
    atomic { if :: mine != NOBODY && FENCED -> goto fenced :: else fi }
#endif
    atomic { /* 1. stage */
      may_die;
      txns--;
      if :: all_of[me] = false :: publishes > 0 -> publishes--; all_of[me] = true fi;
      if :: tensor_of[me] = 0 :: tensor_of[me] = 1 fi;
      if :: value[me] = 1 + me :: me == 1 -> value[me] = 0 fi;
      if :: mine == NOBODY -> names++; name[me] = names; mine = names; NOTE(me) :: else fi;
      record[me] = false; journal_lock[me] = me + 1
    }
again:
    open_current();
    atomic { /* 2. lock */
      LANDED(other) && whole[file] == NOBODY && owner[2 * file + PLACE(tensor_of[me])] == NOBODY && (!all_of[me] || !LOCKED(file)) ->
      if
      :: all_of[me] -> whole[file] = me + 1
      :: else -> owner[2 * file + PLACE(tensor_of[me])] = me + 1
      fi;
      lost[me] = false;
      printf("host %d locks tensor %d for value %d\n", me, tensor_of[me], value[me])
    }
    if :: file != current -> release(me); goto again :: else fi;
    atomic { /* look, past the cache */
      may_die;
#ifdef STALE_LOOK
      if :: !knows[me] -> knows[me] = true; was[me] = record[other] :: else fi;
      hot = LOOKED_AT(other) && was[me];
#else
      hot = LOOKED_AT(other) && record[other];
#endif
      if
      :: hot && (all_of[me] || journal_lock[other] == NOBODY || PLACE(tensor_of[other]) == PLACE(tensor_of[me])) -> skip
      :: else -> hot = false
      fi;
      idle = LOOKED_AT(other) && !record[other] && journal_lock[other] == NOBODY
    }
    if :: idle -> settle_idle(other); idle = false :: else fi;
    if
    :: hot -> release(me); hot = false; recover(me); goto again
    :: else
    fi;
    /* Who publishes may have asked before its journal was claimed. What it sent then has ended by now. */
    atomic {
      LANDED(other) || !all_of[other];
#ifndef REPLACED_UNSEEN
      if :: file != current -> release(me); goto again :: else fi;
#endif
      if :: lost[me] || file != current -> skip :: else -> if :: all_of[me] -> resolve(3) :: else -> resolve(1 << PLACE(tensor_of[me])) fi fi
    }
    atomic { /* 3. note the old bytes */
      may_die;
#ifdef STALE_READ
      if :: !cached[me] -> cached[me] = true; cache[2 * me] = HELD(file, 0); cache[2 * me + 1] = HELD(file, 1) :: else fi;
#else
      cache[2 * me] = HELD(file, 0); cache[2 * me + 1] = HELD(file, 1);
#endif
      old[me] = cache[2 * me + tensor_of[me]];
      made_for[me] = file;
#if CUTS
      passed[me] = false;
#endif
      SYNC_FOLDER /* 4. */
    }
    if
    :: all_of[me] -> /* another file, and the last question before it takes the name */
      atomic {
        may_die;
#ifndef RENAMED_UNASKED
        if :: FENCED || file != current -> goto fenced :: else fi;
#endif
        in_flight[me] = true
      }
      atomic {
        may_die;
        current = files; files++;
        cache[2 * me + tensor_of[me]] = value[me];
        HELD(current, 0) = cache[2 * me]; HELD(current, 1) = cache[2 * me + 1];
        truth[tensor_of[me]] = value[me];
        in_flight[me] = false;
        printf("host %d renames: %d %d\n", me, HELD(current, 0), HELD(current, 1))
      }
      goto done
    :: else
    fi;
    atomic { may_die; if :: FENCED -> goto fenced :: else fi }
    /* 5. and 6. the record, durable: into a file that may have no name by now */
    atomic { may_die; if :: REFUSED(me) -> goto fenced :: else -> record[me] = true; open[me] = MAY_BE_FOUND(me) && !IS_VOID(me); printf("host %d writes its record; in the folder: %d\n", me, IN_FOLDER(me)) fi }
#ifndef NO_CHECK_AFTER
    atomic {
      may_die;
      if
      :: FENCED ->
#ifdef TAKEN_BACK
        record[me] = false; open[me] = false; /* "nothing was changed" */
#endif
        goto fenced
      :: else
      fi;
      in_flight[me] = true
    }
#else
    atomic { in_flight[me] = true }
#endif
    /* 7. write */
    atomic { may_die; cache[2 * me + tensor_of[me]] = value[me] }
    atomic { /* 8. and sync: the whole page goes to the server */
      may_die;
      if :: REFUSED(me) -> goto fenced :: else fi;
      HELD(file, 0) = cache[2 * me]; HELD(file, 1) = cache[2 * me + 1];
      in_flight[me] = false;
      printf("host %d has written: %d %d\n", me, HELD(file, 0), HELD(file, 1))
    }
    atomic { may_die; record[me] = false } /* 9. */
    d_step { /* 10. ST_OK */
      printf("host %d: ST_OK\n", me);
      if
      :: open[me] -> open[me] = false; truth[tensor_of[me]] = value[me]
      :: else -> assert(is_new[me] || IS_VOID(me)) /* somebody has finished it for us, and may have gone on */
      fi;
      is_new[me] = false
    }
done:
    release(me)
  od;
  goto gone;
fenced:
  printf("host %d is fenced off\n", me); /* after the record ST_E_NEEDS_RECOVERY; the handle is poisoned */
dead:
  printf("host %d ends\n", me);
  release(me);
  journal_lock[me] = NOBODY;
gone: /* close */
  atomic { if :: mine != NOBODY && journal_lock[me] == me + 1 -> journal_lock[me] = NOBODY; if :: !RENAMED(me, mine) -> name[me] = NOBODY; NOTE(me) :: else fi :: else fi }
  CUT_OFF;
  atomic { in_flight[me] = false; i = 0; k = 0; claimed = 0; mine = 0; file = 0; hot = false; idle = false; finished++ }
}

/* The server drops all locks of a host that it does not hear of. */
proctype server_timer() {
  byte k;
end:
  if
  :: atomic { losses > 0 -> losses--; lost[0] = true; printf("host 0 loses its locks\n"); release(0); journal_lock[0] = NOBODY }
  :: atomic { losses > 0 -> losses--; lost[1] = true; printf("host 1 loses its locks\n"); release(1); journal_lock[1] = NOBODY }
  fi
}

/* A program that saves over the file as it was at first, and takes no locks. */
proctype stock_program() {
  byte k;
end:
  d_step {
    true ->
    current = files; files++; stock = current;
    truth[0] = 0; truth[1] = 0;
    for (k : 0 .. 1) { open[k] = false }
    k = 0;
    printf("a stock program saves\n")
  }
}

#if CUTS
proctype power() {
  byte k;
end:
  atomic {
    cuts > 0 && !judging -> cuts--; up = false;
    for (k : 0 .. 1) {
      if
      :: may[k] & bit(ABSENT) -> name[k] = NOBODY
      :: may[k] & bit(NAMED) -> names++; name[k] = names; dropped[k] = false
      :: may[k] & bit(DROPPED) -> names++; name[k] = names; dropped[k] = true
      fi;
      may[k] = bit(ENTRY(k));
      journal_lock[k] = NOBODY; owner[k] = NOBODY;
      printf("power cut; journal %d: %d, its record %d\n", k, ENTRY(k), record[k])
    };
    k = 0; whole[0] = NOBODY
  }
}
#endif

proctype judge() {
  byte i, k, claimed, file;
  bool hot;
#if CUTS
  atomic { finished == 2 -> judging = true; up = true; kills = 0 };
#else
  finished == 2 -> kills = 0;
#endif
  recover(JUDGE);
dead: skip
}

init {
  atomic {
    run host(0, 1); run host(1, 2); run judge(); run server_timer();
#if CUTS
    run power();
#endif
#ifdef STOCK_SAVE
    run stock_program()
#endif
  }
}
