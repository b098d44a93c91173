/* Two shards, a transaction on both, and its super-journal, where several hosts write. The first host has prepared all,
   and decides. It may lose its locks, without a word, and may be frozen wherever others' steps come in between. Each of
   the other hosts locks a shard of its own, settles what it finds there, and changes the shard. Any host may die once.
   The rules: before a part is dropped, its super-journal gets another name, is read after that, and is dropped first.
   The writer asks for all names when its record is durable, and for the super-journal before each write. What is in
   flight when a host loses its locks ends before another gets them, or changes a shard (hosts.pml has that window). */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LOSSES
#define LOSSES 1 /* of the first of the others */
#endif
#define GONE 0
#define WRITER 1         /* names: the writer's, */
#define NAME_OF(me) me + 2 /* and what a host gives: it claims one thing at a time */
#define JUDGE 2

byte super = WRITER, part[2] = WRITER; /* their names */
bool record;                           /* of the super-journal; those of the parts are there */
byte data[2];                          /* 0: old; 1: of the transaction; more: of who changed it alone */
byte owner[2] = 3;                     /* holder + 1; the writer is 2 */
bool in_flight, lost, acknowledged, refused;
bool changed[2], was_new[2]; /* by its host, and what it was before */
byte kills = KILLS, losses = LOSSES, finished;

#define may_die if :: true :: kills > 0 -> kills--; goto dead fi
#define LANDED !(lost && in_flight)
#define FREE(s) (owner[s] == 0 && LANDED)
#define IS_LOST(me) (owner[0] != me + 1)

inline claim_super(me) {
  atomic { may_die; if :: super != GONE -> super = NAME_OF(me); mine = super :: else -> mine = GONE fi }
}
inline drop_super() { /* `gone`: it was this host that dropped it */
  atomic { may_die; if :: super == mine -> super = GONE; gone = true :: else -> gone = false fi }
}

/* All of it, under all locks. The judge is alone. */
inline finish_all(me) {
#ifdef FINISHED_UNCLAIMED
  mine = super;
#else
  claim_super(me);
#endif
  if
  :: mine != GONE && record ->
    atomic {
      may_die;
      if
      :: super == mine ->
        assert(part[0] != GONE && part[1] != GONE); /* or it is moved aside, and its transaction is lost */
        assert(data[0] <= 1 && data[1] <= 1);       /* nobody has changed a shard since */
        first = part[0]; second = part[1];
        data[0] = 1
      :: else -> mine = GONE
      fi
    }
    atomic { may_die; if :: mine != GONE && super == mine -> data[1] = 1 :: else -> mine = GONE fi }
    if
    :: mine != GONE ->
      atomic { may_die; record = false }
      drop_super();
#ifdef DROPPED_BLINDLY
      gone = true;
#endif
      atomic { may_die; if :: gone && part[0] == first -> part[0] = GONE :: else fi }
      atomic { may_die; if :: gone && part[1] == second -> part[1] = GONE :: else fi }
    :: else
    fi
  :: mine != GONE && !record -> drop_super()
  :: else
  fi;
  mine = GONE; first = GONE; second = GONE
}

proctype writer() {
  atomic { may_die; if :: super != WRITER || part[0] != WRITER || part[1] != WRITER -> refused = true; goto dead :: else fi }
  atomic { may_die; record = true }
#ifndef NO_CHECK_AFTER
  atomic {
    may_die;
    if :: super != WRITER || part[0] != WRITER || part[1] != WRITER -> goto dead :: else fi;
    in_flight = true
  }
#else
  in_flight = true;
#endif
  atomic { may_die; data[0] = 1; in_flight = false }
#ifndef NOT_ASKED_AGAIN
  atomic { may_die; if :: super != WRITER -> goto dead :: else fi; in_flight = true }
#endif
  atomic { may_die; data[1] = 1; in_flight = false }
  atomic { may_die; record = false }
#ifndef PARTS_TAKEN_BLINDLY
  atomic { may_die; if :: super != WRITER -> goto dead :: else -> acknowledged = true fi }
#endif
  atomic { may_die; if :: super == WRITER -> super = GONE :: else fi }
  atomic { may_die; if :: part[0] == WRITER -> part[0] = GONE :: else fi }
  atomic { may_die; if :: part[1] == WRITER -> part[1] = GONE :: else fi }
dead:
  atomic {
    in_flight = false;
    if :: owner[0] == 3 -> owner[0] = 0 :: else fi;
    if :: owner[1] == 3 -> owner[1] = 0 :: else fi;
    finished++
  }
}

/* Locks shard `me`. */
proctype host(byte me) {
  byte mine, taken, first, second;
  bool gone, all;
again:
  atomic { FREE(me) -> owner[me] = me + 1 }
  if
  :: part[me] == GONE -> goto settled
  :: else
  fi;
  atomic { may_die; if :: part[me] != GONE -> part[me] = NAME_OF(me); taken = part[me] :: else -> goto settled fi }
  /* What decides? */
#ifdef PART_FIRST
  if
  :: !record -> atomic { may_die; if :: part[me] == taken -> part[me] = GONE :: else fi }
  :: else
  fi;
#endif
  if
  :: super == GONE
  :: super != GONE && record -> all = true
  :: super != GONE && !record ->
#ifndef NOT_CLAIMED
    claim_super(me);
    if
    :: mine == GONE -> owner[me] = 0; goto again
    :: mine != GONE ->
#ifndef READ_BEFORE
      if
      :: record -> all = true
      :: else -> drop_super(); if :: !gone -> mine = GONE; owner[me] = 0; goto again :: else fi
      fi
#else
      drop_super(); if :: !gone -> mine = GONE; owner[me] = 0; goto again :: else fi
#endif
    fi;
    mine = GONE
#endif
  fi;
  if
  :: all ->
    all = false; owner[me] = 0;
    atomic { FREE(0) -> owner[0] = me + 1 }
    atomic { FREE(1) -> owner[1] = me + 1 }
    finish_all(me);
    atomic { owner[0] = 0; owner[1] = 0 }
    goto again
  :: else -> atomic { may_die; if :: part[me] == taken -> part[me] = GONE :: else fi }
  fi;
settled: /* its own change has a fence of its own (hosts.pml) */
  atomic { LANDED -> may_die; if :: owner[me] != me + 1 -> goto again :: else -> was_new[me] = data[me] == 1; data[me] = 2 + me; changed[me] = true fi }
dead:
  atomic {
    if :: owner[0] == me + 1 -> owner[0] = 0 :: else fi;
    if :: owner[1] == me + 1 -> owner[1] = 0 :: else fi;
    mine = GONE; taken = GONE; gone = false; all = false; finished++
  }
}

proctype server_timer() {
end:
  do
  :: atomic { !lost -> lost = true; if :: owner[0] == 3 -> owner[0] = 0 :: else fi; if :: owner[1] == 3 -> owner[1] = 0 :: else fi }
  :: atomic { losses > 0 && (owner[0] == 1 || owner[1] == 1) -> losses--; if :: owner[0] == 1 -> owner[0] = 0 :: else fi; if :: owner[1] == 1 -> owner[1] = 0 :: else fi }
  od
}

proctype judge() {
  byte mine, first, second;
  bool gone;
  finished == 3 -> kills = 0;
  finish_all(JUDGE);
  d_step {
    assert(!changed[0] || data[0] == 2); /* an acknowledged change is there */
    assert(!changed[1] || data[1] == 3);
    assert(!acknowledged || (data[0] != 0 && data[1] != 0));
    assert((changed[0] -> was_new[0] : data[0] == 1) == (changed[1] -> was_new[1] : data[1] == 1)); /* all or nothing */
    assert(!refused || (data[0] != 1 && data[1] != 1))
  }
dead: skip
}

init { atomic { run writer(); run host(0); run host(1); run judge(); run server_timer() } }
