/* A handle of an index and two shards, whose threads commit and refresh, beside the commit of another handle. What the
   handle shows is a catalogue: a state of each file. Each catalogue has all of a commit or nothing of it.
   A file's state is the set of commits that have changed it. Each commit gives new files their names one after the
   other: the first shard, the index, the second shard. Locks, journals and failures are as the commit has them; a power
   cut is not here.
   A, B, C: the files that each commit changes, as a set. A and B are the handle's own, C is by another handle. */
#ifndef A
#define A 0
#endif
#ifndef B
#define B 0
#endif
#ifndef C
#define C 0
#endif
#ifndef REFRESHES
#define REFRESHES 1 /* one after the other, in a thread */
#endif
#ifndef FAILS
#define FAILS 0 /* commits of this handle may fail half way */
#endif
#ifndef WITHHELD_IS_AN_ERROR
#define WITHHELD_IS_AN_ERROR false
#endif
#ifndef REPLACED_IS_AN_ERROR
#define REPLACED_IS_AN_ERROR false
#endif
#ifndef DIES
#define DIES 0 /* the other handle's process may */
#endif

#define FILES 3
#define bit(n) (1 << (n))
#define has(set, n) (((set) >> (n)) & 1)
#define OLD 8 /* of each file, at first */
#define NOBODY 0
#define OTHER 4
#define MAKE 1
#define REFRESH 2
#define AGAIN 3

/* On the disk. */
byte file[FILES] = OLD;
byte lock[FILES];        /* whose, plus one */
bool hot;                /* the super-journal of a commit that was left to recovery */
byte hot_parts;          /* shards whose journal no writer has any more */
byte to_rename, hot_commit;

/* Of the handle: what each shard is, and each file in the catalogue that is shown. */
byte now[FILES] = OLD;
byte shown[FILES] = OLD;
byte mutex;
byte withheld;           /* shards */
byte withheld_index, locked_index;
byte own_index, own_before;
byte unseen, refreshed;
byte follows[FILES], follows_refreshed[FILES];
bool poisoned;

/* Sets of threads. They stand for numbers of looks, and for counters. */
byte overtaken;          /* another catalogue was shown since they looked */
byte outrun;             /* and that one is of a look that began when their call had begun */
byte showing;            /* their call has begun */
byte calls_before[4];    /* calls that had begun when this thread looked */
byte renewed;            /* a commit has shown its index, or all shards were refreshed, since they looked */
byte moved[FILES];       /* another state of the shard was shown since they looked at it */
byte later[FILES];       /* and that one is of a look that began when they had begun to refresh */
byte refreshing;         /* they have begun to refresh */
byte locking;            /* they are locking a shard */
byte refreshed_before[12]; /* refreshes that had begun when this thread looked at this shard */
#define before(me, s) refreshed_before[3 * (me) + (s)]

/* Of the proof. */
byte done;               /* commits that were acknowledged, or left to recovery */
byte looking;            /* threads in a call that looks */
byte other;              /* C has begun to rename; has ended */
bool mixed;              /* a look has overlapped C, and no refresh has come after it */

#define all_of(commit, set) ((!has(set, 0) || (shown[0] & (commit))) && (!has(set, 1) || (shown[1] & (commit))) && \
                             (!has(set, 2) || (shown[2] & (commit))))
#define none_of(commit, set) ((!has(set, 0) || !(shown[0] & (commit))) && (!has(set, 1) || !(shown[1] & (commit))) && \
                              (!has(set, 2) || !(shown[2] & (commit))))
#define whole(commit, set) (all_of(commit, set) || none_of(commit, set))

/* Rules that a variant may lack. */
#ifdef FOREIGN_INDEX_KNOWN
#define FOREIGN_INDEX_IS_KNOWN || true
#else
#define FOREIGN_INDEX_IS_KNOWN
#endif
#ifdef FOLLOWED_ALONE
#define FOLLOWED skip
#else
#define FOLLOWED follows[s]++
#endif
#ifdef NOT_POISONED
#define POISONED false
#else
#define POISONED poisoned
#endif
#ifdef FOUND_ONE_BY_ONE
#define TAKE_TO_SHOW skip
#define GIVE_BACK skip
#else
#define TAKE_TO_SHOW mutex == NOBODY -> mutex = me + 1
#define GIVE_BACK mutex = NOBODY
#endif

/* SuperRecovery::run: the index is locked, then the shards. */
inline recover() {
  atomic { lock[0] == NOBODY -> lock[0] = me + 1 }
  if
  :: atomic { hot && lock[1] == NOBODY && lock[2] == NOBODY -> lock[1] = me + 1; lock[2] = me + 1 }
    atomic { if :: has(to_rename, 1) -> file[1] = file[1] | hot_commit :: else fi }
    atomic { if :: has(to_rename, 0) -> file[0] = file[0] | hot_commit :: else fi }
    atomic { if :: has(to_rename, 2) -> file[2] = file[2] | hot_commit :: else fi }
    atomic {
      printf("thread %d has recovered commit %d\n", me, hot_commit);
      hot = false; hot_parts = 0; to_rename = 0; hot_commit = 0;
      lock[0] = NOBODY; lock[1] = NOBODY; lock[2] = NOBODY
    }
  :: atomic { !hot -> lock[0] = NOBODY }
  fi
}

inline recover_left() {
  if :: hot -> recover() :: else fi
}

/* DataFile::begin_look */
inline begin_look(s) {
  moved[s] = moved[s] & ~bit(me);
  before(me, s) = refreshing & ~bit(me)
}

/* Whoever else looks at this shard sees that another state is shown. */
inline show_state(s, state) {
  now[s] = state;
  moved[s] = moved[s] | ((refreshing | locking) & ~bit(me));
  later[s] = later[s] | (before(me, s) & refreshing & ~bit(me));
  before(me, s) = 0
}

#define is_next(s) (!has(moved[s], me))
#define is_to_be_found(s) (!is_next(s) && !has(later[s], me))

/* DataFile::find */
inline find(s) {
  do
  :: true ->
    atomic { begin_look(s); was = now[s] }
#ifdef WITHHELD_ASKED_BEFORE
    is_hidden = has(withheld, s);
#endif
    v = file[s];
    if
    :: has(hot_parts, s) ->
      recover();
#ifndef HOT_STAYS_OPEN
      v = file[s]
#endif
    :: else
    fi;
    atomic {
#ifndef WITHHELD_ASKED_BEFORE
      is_hidden = has(withheld, s);
#endif
      is_hidden = is_hidden && v != was;
      found[s] = (v == was || is_hidden -> 0 : v);
      v = 0
    }
#ifdef OWN_MEMORY
    atomic { /* what is shown was read into memory, and is read there once more, by the path */
      if
      :: !found[s] && file[s] != was && !is_hidden -> assert(!REPLACED_IS_AN_ERROR)
      :: !found[s] && file[s] != was && is_hidden -> assert(!WITHHELD_IS_AN_ERROR); break
      :: else -> break
      fi
    }
#else
    break
#endif
  od;
  atomic { was = 0; is_hidden = false }
}

inline show_found(s) {
  if :: found[s] && is_next(s) -> show_state(s, found[s]) :: else fi;
  found[s] = 0
}

/* Shards::refresh_shards */
inline refresh_shards() {
#ifndef UNSEEN_ASKED_LATE
  seen = unseen;
#endif
#ifndef NOT_RECOVERED_FIRST
  recover_left();
#endif
#ifdef UNSEEN_ASKED_LATE
  seen = unseen;
#endif
  atomic {
    refreshing = refreshing | bit(me);
    later[1] = later[1] & ~bit(me); later[2] = later[2] & ~bit(me);
    followed[1] = follows[1]; followed[2] = follows[2];
    todo = 6;
    printf("thread %d refreshes the shards\n", me)
  }
  do
  :: todo ->
    if :: has(todo, 1) -> find(1) :: else fi;
    if :: has(todo, 2) -> find(2) :: else fi;
    atomic {
      TAKE_TO_SHOW;
      todo = (is_to_be_found(1) -> 2 : 0) | (is_to_be_found(2) -> 4 : 0);
      if :: todo -> GIVE_BACK :: else fi
    }
  :: else -> break
  od;
  atomic { show_found(1) }
  atomic {
    show_found(2);
    follows_refreshed[1] = followed[1]; follows_refreshed[2] = followed[2];
    refreshed = seen;
#ifndef REFRESHED_UNCOUNTED
    renewed = renewed | (showing & ~bit(me));
#endif
    seen = 0; followed[1] = 0; followed[2] = 0;
    refreshing = refreshing & ~bit(me);
    later[1] = later[1] & ~bit(me); later[2] = later[2] & ~bit(me);
    moved[1] = moved[1] & ~bit(me); moved[2] = moved[2] & ~bit(me);
    before(me, 1) = 0; before(me, 2) = 0;
    GIVE_BACK
  }
}

#define is_own(index) ((index) == own_index || (index) == own_before)
#define is_behind (refreshed != unseen || follows[1] != follows_refreshed[1] || follows[2] != follows_refreshed[2])


/* A catalogue is shown. Whoever takes a snapshot now has all of a commit, or nothing of it, and nothing older. */
inline shows() {
  d_step {
    assert((shown[0] & ~read) == 0 && (shown[1] & ~pin[1]) == 0 && (shown[2] & ~pin[2]) == 0);
    shown[0] = read; shown[1] = pin[1]; shown[2] = pin[2];
    printf("thread %d shows %d %d %d\n", me, shown[0], shown[1], shown[2]);
    assert(whole(1, A) && whole(2, B));
    assert(mixed || whole(4, C));
    overtaken = overtaken | (showing & ~bit(me));
    outrun = outrun | (calls_before[me] & showing)
  }
}

/* Shards::show, after recover_left(). `refreshed_for`: the index before the shards were last refreshed. */
inline show_anew() {
  atomic { showing = showing | bit(me); outrun = outrun & ~bit(me) }
  do
  :: true ->
    atomic { overtaken = overtaken & ~bit(me); calls_before[me] = showing & ~bit(me); looked = shown[0] }
    atomic { renewed = renewed & ~bit(me) }
    read = file[0];
    atomic {
      mutex == NOBODY ->
      if
      :: has(overtaken, me) && has(outrun, me) -> break
      :: (has(overtaken, me) && !has(outrun, me)) || (!has(overtaken, me) && has(renewed, me)) -> step = AGAIN
      :: else ->
        mutex = me + 1;
#ifndef INDEX_NOT_WITHHELD
        if :: withheld_index && read == withheld_index -> read = locked_index :: else fi;
#endif
        step = (read == looked || is_own(read) || read == refreshed_for FOREIGN_INDEX_IS_KNOWN -> MAKE : REFRESH)
      fi
    }
#ifdef ASKED_BEFORE
    atomic { if :: step == MAKE && is_behind -> step = REFRESH :: else fi }
#endif
    if
    :: step == MAKE -> /* make_catalogue */
      pin[1] = now[1];
      pin[2] = now[2];
      atomic {
        if
        :: has(renewed, me) -> step = AGAIN; mutex = NOBODY
#ifndef ASKED_BEFORE
        :: !has(renewed, me) && is_behind -> step = REFRESH
        :: !has(renewed, me) && !is_behind -> shows(); mutex = NOBODY; break
#else
        :: else -> shows(); mutex = NOBODY; break
#endif
        fi;
        pin[1] = 0; pin[2] = 0
      }
    :: else
    fi;
    if
    :: step == REFRESH ->
      atomic { mutex = NOBODY; refreshed_for = read; read = 0; looked = 0 }
      refresh_shards()
    :: else
    fi
  od;
  atomic {
    showing = showing & ~bit(me); overtaken = overtaken & ~bit(me); outrun = outrun & ~bit(me);
    renewed = renewed & ~bit(me); calls_before[me] = 0;
    read = 0; looked = 0; refreshed_for = 0; step = 0; pin[1] = 0; pin[2] = 0
  }
}

/* lock_for_commit: the shard is locked, and is what the handle shows, or the handle follows it. */
inline lock_shard(s) {
  do
  :: true ->
    atomic { begin_look(s); locking = locking | bit(me) }
    atomic { lock[s] == NOBODY -> lock[s] = me + 1; if :: file[s] == now[s] -> break :: else -> v = file[s] fi }
    atomic { lock[s] = NOBODY; FOLLOWED } /* follow_to, DataFile::adopt_found */
    atomic { if :: is_next(s) -> show_state(s, v) :: else fi; v = 0 }
  od;
  atomic { locking = locking & ~bit(me); moved[s] = moved[s] & ~bit(me); before(me, s) = 0 }
}

#define UNLOCK_ALL \
  if :: lock[0] == me + 1 -> lock[0] = NOBODY :: else fi; \
  if :: lock[1] == me + 1 -> lock[1] = NOBODY :: else fi; \
  if :: lock[2] == me + 1 -> lock[2] = NOBODY :: else fi
#if FAILS
#define MAY_FAIL if :: goto fails :: true fi
#else
#define MAY_FAIL skip
#endif
#if DIES
#define MAY_DIE if :: goto dies :: true fi
#else
#define MAY_DIE skip
#endif
#define SHOW_SHARD(s) if :: has(set, s) -> show_state(s, file[s]); withheld = withheld & ~bit(s) :: else fi
#define SHOW_INDEX withheld_index = 0; locked_index = 0
#ifdef SHOWN_UNCOUNTED
#define COUNT_SHOWN skip
#else
#define COUNT_SHOWN if :: has(set, 0) -> renewed = showing :: else fi
#endif
#ifdef COMMIT_SHOWN_ONE_BY_ONE
#define SHOW_COMMIT \
  atomic { SHOW_SHARD(1) } \
  atomic { SHOW_SHARD(2) } \
  atomic { SHOW_INDEX; COUNT_SHOWN }
#else
#define SHOW_COMMIT \
  atomic { mutex == NOBODY -> SHOW_SHARD(1); SHOW_SHARD(2); SHOW_INDEX; COUNT_SHOWN }
#endif

/* A thread of the handle that commits: to one shard alone (Transaction::commit), or to several files (ShardCommit). */
proctype committer(byte me, set) {
  byte found[FILES], pin[FILES], followed[FILES];
  byte v, was, todo, seen, read, looked, refreshed_for, step;
  bool is_hidden;
#define COMMIT (1 << me)
#define ALONE (set == 2 || set == 4)

again:
  if
  :: !ALONE -> atomic { lock[0] == NOBODY -> lock[0] = me + 1 }
    if :: hot -> lock[0] = NOBODY; recover(); goto again :: else fi
  :: else
  fi;
  if :: has(set, 1) -> lock_shard(1) :: else fi;
  if :: has(set, 2) -> lock_shard(2) :: else fi;
  atomic {
    if
    :: hot_parts & set -> /* of a dead writer, beside a shard that is locked */
      UNLOCK_ALL;
      goto recovers
    :: else
    fi;
    if
    :: POISONED -> UNLOCK_ALL; goto vain
    :: else
    fi
  }
  /* It is prepared. What will be shown is of a look that begins here. */
  atomic {
    if :: has(set, 1) -> before(me, 1) = refreshing :: else fi;
    if :: has(set, 2) -> before(me, 2) = refreshing :: else fi
  }
  if
  :: ALONE ->
    atomic { if :: has(set, 1) -> file[1] = file[1] | COMMIT :: else -> file[2] = file[2] | COMMIT fi }
    atomic { if :: has(set, 1) -> show_state(1, file[1]) :: else -> show_state(2, file[2]) fi }
    atomic { UNLOCK_ALL; looking = looking | bit(me); mixed = mixed || other == 1 }
  :: else ->
    atomic {
      mutex == NOBODY -> /* withhold */
#ifndef SHARDS_NOT_WITHHELD
      withheld = withheld | (set & 6);
#endif
      if :: has(set, 0) -> withheld_index = file[0] | COMMIT; locked_index = file[0] :: else fi
    }
    MAY_FAIL;
    if :: has(set, 1) -> atomic { file[1] = file[1] | COMMIT }; MAY_FAIL :: else fi;
    if
    :: has(set, 0) ->
      atomic { /* rename_index */
#ifndef REPLACED_UNSEEN
        if :: !is_own(file[0]) && shown[0] != file[0] -> unseen++ :: else fi;
#endif
        own_before = (is_own(file[0]) -> file[0] : 0);
        own_index = file[0] | COMMIT
      }
      atomic { file[0] = file[0] | COMMIT }
      MAY_FAIL
    :: else
    fi;
    if :: has(set, 2) -> atomic { file[2] = file[2] | COMMIT }; MAY_FAIL :: else fi;
    SHOW_COMMIT;
    atomic {
      if :: has(set, 1) -> lock[1] = NOBODY :: else fi;
      if :: has(set, 2) -> lock[2] = NOBODY :: else fi
    }
    atomic { lock[0] = NOBODY; looking = looking | bit(me); mixed = mixed || other == 1 }
  fi;
  recover_left();
  show_anew();
  atomic {
    assert(all_of(COMMIT, set));
    done = done | COMMIT;
    looking = looking & ~bit(me)
  }
  goto end;

recovers:
  recover();
  goto again;

vain: /* it shows what it has followed to, if it is of one shard alone */
  if
  :: ALONE ->
    atomic { looking = looking | bit(me); mixed = mixed || other == 1 }
    recover_left();
    show_anew();
    looking = looking & ~bit(me)
  :: else
  fi;
  goto end;

fails: /* open_outcome */
  atomic {
    printf("thread %d: its commit fails; the files have %d %d %d\n", me, file[0], file[1], file[2]);
    hot = true; hot_commit = COMMIT;
    to_rename = set & ~((file[0] & COMMIT -> 1 : 0) | (file[1] & COMMIT -> 2 : 0) | (file[2] & COMMIT -> 4 : 0))
  }
  if :: has(set, 1) -> atomic { lock[1] = NOBODY; hot_parts = hot_parts | 2 } :: else fi;
  if :: has(set, 2) -> atomic { lock[2] = NOBODY; hot_parts = hot_parts | 4 } :: else fi;
  atomic {
    mutex == NOBODY -> /* end_withholding */
    withheld = withheld & ~set;
    withheld_index = 0; locked_index = 0;
#ifndef FAILED_SEEN
    unseen++
#endif
  }
  poisoned = true;
  atomic { lock[0] = NOBODY; done = done | COMMIT }
end:
  skip
}

/* A thread that refreshes. */
proctype refresher(byte me, left) {
  byte found[FILES], pin[FILES], followed[FILES];
  byte v, was, todo, seen, read, looked, refreshed_for, step;
  byte began, must;
  bool is_hidden;

  do
  :: left > 0 ->
    atomic { left--; looking = looking | bit(me); must = done; began = other; mixed = mixed || other == 1 }
    refreshed_for = file[0];
    refresh_shards();
    show_anew();
    atomic {
      if
      :: began == other && other != 1 -> mixed = false; assert(whole(4, C))
      :: else
      fi;
      assert((!(must & 1) || all_of(1, A)) && (!(must & 2) || all_of(2, B)) && (!(must & 4) || all_of(4, C)));
      looking = looking & ~bit(me);
      must = 0; began = 0
    }
  :: left == 0 -> break
  od
}

/* Another handle's commit. What it left to recovery is as good as done: whoever looks recovers first. */
proctype another(byte me) {
again:
  if
  :: atomic { !hot && lock[0] == NOBODY && (!has(C, 1) || lock[1] == NOBODY) && (!has(C, 2) || lock[2] == NOBODY) ->
      lock[0] = me + 1;
      if :: has(C, 1) -> lock[1] = me + 1 :: else fi;
      if :: has(C, 2) -> lock[2] = me + 1 :: else fi;
      printf("another handle commits\n");
      other = 1;
      mixed = mixed || looking
    }
  :: hot -> recover(); goto again
  fi;
  MAY_DIE;
  if :: has(C, 1) -> atomic { file[1] = file[1] | 4 }; MAY_DIE :: else fi;
  if :: has(C, 0) -> atomic { file[0] = file[0] | 4 }; MAY_DIE :: else fi;
  if :: has(C, 2) -> atomic { file[2] = file[2] | 4 } :: else fi;
  atomic { UNLOCK_ALL; other = 2; done = done | 4; goto end }
dies:
  atomic {
    hot = true; hot_parts = C & 6; hot_commit = 4;
    to_rename = C & ~((file[0] & 4 -> 1 : 0) | (file[1] & 4 -> 2 : 0) | (file[2] & 4 -> 4 : 0));
    UNLOCK_ALL; other = 2; done = done | 4
  }
end:
  skip
}

init {
  atomic {
    run refresher(2, REFRESHES);
#ifdef TWO_REFRESHERS
    run refresher(3, 1);
#endif
    if :: A -> run committer(0, A) :: else fi;
    if :: B -> run committer(1, B) :: else fi;
    if :: C -> run another(OTHER) :: else fi
  }
}
