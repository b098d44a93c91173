/* Three hosts, and the journal of the first, which lives. Each of the others locks bytes, looks at the journal, and takes it
   from its writer by another name. Nobody may take it from a writer that has its locks. From one that has lost them the
   next locker of its bytes must, before the writer asks for its journal for the last time.
   The rules: a journal says whose bytes it is on before it is locked for a record. A locker sees how the journal is locked,
   and reads after that. A journal without bytes is locked before it is taken. */
#ifndef LOSSES
#define LOSSES 0
#endif
#define NOBODY 0
#define SHARED 1   /* by its writer, for later */
#define RECORD 2   /* exclusively, by its writer */
#define ASKER 3    /* exclusively, by another; nobody can tell the two apart */

byte journal;               /* its number; another one for each that is made */
bool there;                 /* it has its writer's name */
bool has_bytes;
byte says;                  /* of whose bytes: tensor + 1, or nothing */
byte lock_of;               /* on the journal */
byte owner[2];              /* of each tensor's bytes: host + 1, or NOBODY */
bool lost;                  /* the writer's locks went without a word */
bool looked[2];             /* somebody has locked these bytes since, and looked */
byte losses = LOSSES;

#define LIVES (losses == LOSSES)

/* Any time between two steps of the writer. */
inline may_lose() {
  if
  :: losses > 0 && there ->
    losses--; lost = true; lock_of = (lock_of == ASKER -> ASKER : NOBODY);
    if :: owner[0] == 1 -> owner[0] = NOBODY :: else fi;
    if :: owner[1] == 1 -> owner[1] = NOBODY :: else fi
  :: true
  fi
}

proctype writer() {
  byte t, left = 2;
made:
  atomic { journal++; there = true; has_bytes = false; says = 0; lock_of = NOBODY }
  atomic { if :: lock_of == NOBODY -> lock_of = SHARED :: else -> goto made fi }
  atomic { if :: !there -> goto made :: else fi } /* it was taken before it was locked */
  do
  :: left == 0 -> break
  :: left > 0 ->
    left--;
    atomic { if :: !there -> assert(!LIVES); goto fenced :: else fi; has_bytes = true; may_lose() } /* stage */
    if :: t = 0 :: t = 1 fi;
    atomic { owner[t] == NOBODY -> owner[t] = 1; lost = false; looked[0] = false; looked[1] = false; may_lose() }
    atomic { if :: !there -> assert(!LIVES); goto fenced :: else fi; may_lose() }
#ifndef UNSAID
    atomic { says = t + 1; may_lose() }
#endif
    atomic {
#ifndef LOCKED_BLINDLY
      if :: lock_of == ASKER -> assert(!LIVES); goto fenced :: else fi;
#endif
      lock_of = (lock_of == ASKER -> ASKER : RECORD);
      may_lose()
    }
    atomic { /* the record is durable; asks for the last time, and writes */
      if :: !there -> assert(!LIVES); goto fenced :: else fi;
      assert(!(lost && looked[t]));
      may_lose()
    }
    atomic { lock_of = (lock_of == ASKER -> ASKER : SHARED); may_lose() }
    atomic { if :: owner[t] == 1 -> owner[t] = NOBODY :: else fi }
  od;
fenced:
  atomic { if :: owner[0] == 1 -> owner[0] = NOBODY :: else fi; if :: owner[1] == 1 -> owner[1] = NOBODY :: else fi }
}

#define TAKE if :: journal == seen -> there = false :: else fi

proctype locker(byte me) {
  byte t, read, how, seen, left = 2;
  bool bytes;
  do
  :: left == 0 -> break
  :: left > 0 ->
    left--;
    if :: t = 0 :: t = 1 fi;
    atomic { owner[t] == NOBODY -> owner[t] = me + 1 }
look:
    atomic { seen = (there -> journal : NOBODY); bytes = has_bytes; read = says }
    if
    :: seen != NOBODY ->
      atomic { how = (journal == seen -> lock_of : SHARED) }
#ifndef READ_BEFORE
      atomic { if :: how >= RECORD && journal == seen -> read = says; bytes = has_bytes :: else fi }
#endif
      if
      :: how == NOBODY && !bytes ->
#ifndef TAKEN_UNLOCKED
        atomic { if :: journal == seen && lock_of == NOBODY -> lock_of = ASKER :: else -> seen = NOBODY fi }
#endif
        atomic { TAKE }
      :: how == NOBODY && bytes -> atomic { TAKE }
      :: how >= RECORD && bytes && read == t + 1 -> atomic { TAKE }
      :: how >= RECORD && !bytes -> goto look /* recovers, which waits for the other asker */
      :: else
      fi
    :: else
    fi;
    atomic { looked[t] = true; owner[t] = NOBODY }
  od
}

init { atomic { run writer(); run locker(1); run locker(2) } }
