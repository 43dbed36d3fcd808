/*
 * Reshard: a namespace changes from FROM shards to TO while a driver tracks two trees and a bolt
 * sends their rows. lua/README.md, "configure", has the five steps.
 *
 * Tree t has the anchor t and one message. The driver tracks both trees in one micro-batch, on a
 * durable lane, with one part for each shard. It may die and run the batch again at any time, also
 * after the reshard. Rows arrive once or twice, or never. A record may expire at any time. Clients
 * know the number of shards from their last read, and read it again when a shard refuses them. The
 * program that reshards may stop after any step, for any time.
 */
#ifndef FROM
#define FROM 1
#endif
#ifndef TO
#define TO 2
#endif
#define SHARDS 2
#define PLACE(t, of) ((t) & ((of) - 1))     /* the shard of anchor t, of 1 or 2 */
#define PART(s, of) ((of) == 1 -> 3 : 1 << (s))  /* the trees of the micro-batch on shard s */
#define RAISED 7                            /* a digest that no batch has */

mtype = { applied, repeated, changed, closed, other_shard };

/* Two shards; shard 1 exists before the reshard, or after it. */
bit there[SHARDS];
byte shards[SHARDS];     /* the number of shards, as this shard knows it */
bit resharding[SHARDS];
byte fence[SHARDS];      /* of the durable lane: 0, or what its batch held */
byte tracked[SHARDS];    /* trees with a record that was tracked, */
byte early[SHARDS];      /* and with one that was not */
byte waiting[SHARDS];    /* verdicts that the source has not taken */

byte rows[2];            /* rows that were sent */
byte tracks[2];          /* TRACKs that were applied */
byte known;              /* number of shards, as the clients know it */
byte taken;              /* verdicts that the source has taken, of both trees */
bit stopped;             /* the driver has stopped: ChangedBatchError */
byte replied;            /* trees whose TRACK was answered by applied or repeated */
hidden byte i, s, t, part;
mtype reply;
bit ready;

#define OPEN ((tracked[0] & 1) + (tracked[0] >> 1) + (tracked[1] & 1) + (tracked[1] >> 1))

inline check() {
  /* No record in two shards, and none where nobody looks for it. */
  assert(((tracked[0] | early[0]) & (tracked[1] | early[1])) == 0);
  assert(((tracked[0] | early[0]) & ~PART(0, shards[0])) == 0);
  /* Each tree that is tracked is pending, or its verdict waits, or was taken. */
  assert(tracks[0] + tracks[1] == OPEN + waiting[0] + waiting[1] + taken);
  /* A TRACK is applied once, and the driver knows which trees exist. */
  assert(tracks[0] < 2 && tracks[1] < 2);
  assert((!(replied & 1) || tracks[0]) && (!(replied & 2) || tracks[1]))
}

inline read_shards() { known = shards[0] }

/* The script apply, for a part of the micro-batch. */
inline track_part(s) {
  part = PART(s, known);
  if
  :: !there[s] || (part & ~PART(s, shards[s])) -> reply = other_shard; read_shards()
  :: there[s] && !(part & ~PART(s, shards[s])) && fence[s] ->
     reply = (fence[s] == part -> repeated : changed)
  :: there[s] && !(part & ~PART(s, shards[s])) && !fence[s] && resharding[s] ->
#ifdef BREAK_REFUSAL_KEEPS_FENCE
     fence[s] = part;
#endif
     reply = closed
  :: there[s] && !(part & ~PART(s, shards[s])) && !fence[s] && !resharding[s] ->
     reply = applied;
     fence[s] = part;
     t = 0;
     do
     :: t < 2 ->
        if
        :: part & (1 << t) ->
           tracks[t]++;
           tracked[s] = tracked[s] | (1 << t);
           if
           :: early[s] & (1 << t) -> end_tree(s, t)  /* its row was here before */
           :: else
           fi
        :: else
        fi;
        t++
     :: else -> break
     od
  fi;
  printf("EV track_part shard=%d trees=%d outcome=%e\n", s, part, reply)
}

inline end_tree(s, t) {
  tracked[s] = tracked[s] & ~(1 << t);
  early[s] = early[s] & ~(1 << t);
  waiting[s]++
}

#define SEND(s) \
  :: d_step { !stopped && s < known -> \
       track_part(s); \
       if \
       :: reply == applied || reply == repeated -> replied = replied | part \
       :: reply == changed -> stopped = 1 \
       :: else \
       fi; \
       check() } \
  /* The reply is lost, or the driver dies. */ \
  :: d_step { !stopped && s < known -> track_part(s); check() }

active proctype driver() {
  (ready);
end:
  do
  SEND(0)
  SEND(1)
  od
}

inline send_row(t) {
  s = PLACE(t, known);
  rows[t]++;
  if
  :: !there[s] || PLACE(t, shards[s]) != s -> read_shards(); rows[t]--
  :: there[s] && PLACE(t, shards[s]) == s && (tracked[s] & (1 << t)) -> end_tree(s, t)
  :: there[s] && PLACE(t, shards[s]) == s && !(tracked[s] & (1 << t)) ->
     /* While the namespace is resharding, such a row is dropped. */
     if
#ifndef BREAK_EARLY_ROWS_KEPT
     :: resharding[s] -> skip
     :: !resharding[s] -> early[s] = early[s] ^ (1 << t)
#else
     :: early[s] = early[s] ^ (1 << t)
#endif
     fi
  fi;
  printf("EV send_row tree=%d shard=%d\n", t, s)
}

active proctype bolt() {
  (ready);
end:
  do
  :: d_step { rows[0] < 2 -> send_row(0); check() }
  :: d_step { rows[1] < 2 -> send_row(1); check() }
  od
}

#define EXPIRE(s, t) \
  :: d_step { (tracked[s] & (1 << t)) -> \
       printf("EV expire_tree tree=%d shard=%d\n", t, s); end_tree(s, t); check() } \
  :: d_step { (early[s] & (1 << t)) -> \
       printf("EV expire_early tree=%d shard=%d\n", t, s); early[s] = early[s] & ~(1 << t) }

active proctype rotator() {
  (ready);
end:
  do
  EXPIRE(0, 0)
  EXPIRE(0, 1)
  EXPIRE(1, 0)
  EXPIRE(1, 1)
  od
}

#define TAKE(s) \
  :: d_step { waiting[s] -> \
       printf("EV take shard=%d\n", s); taken = taken + waiting[s]; waiting[s] = 0; check() }

active proctype source() {
  (ready);
end:
  do
  TAKE(0)
  TAKE(1)
  od
}

#define EMPTY(s) (!there[s] || (tracked[s] == 0 && early[s] == 0))

active proctype resharder() {
  (ready);
  /* 1. Close: from then on no tree is tracked. */
#ifndef BREAK_NOT_CLOSED
  d_step { printf("EV close shard=0\n"); resharding[0] = 1 }
  if
  :: there[1] -> d_step { printf("EV close shard=1\n"); resharding[1] = 1 }
  :: !there[1] -> skip
  fi;
#endif
  /* 2. Wait until all shards are empty, and the verdicts of removed shards were taken. */
#ifndef BREAK_NOT_EMPTY
#ifdef BREAK_VERDICTS_LEFT
  (EMPTY(0) && EMPTY(1));
#else
  (EMPTY(0) && EMPTY(1) && (TO == 2 || waiting[1] == 0));
#endif
#endif
  /* 3. and 4. Create the new shards, raise the durable lanes, and set the number of shards. */
  if
  :: TO == 2 ->
     d_step { printf("EV create shard=1\n");
       there[1] = 1; shards[1] = TO;
#ifndef BREAK_NOT_CLOSED
       resharding[1] = 1
#endif
     }
  :: else
  fi;
#ifndef BREAK_LANES_NOT_RAISED
  d_step {
    printf("EV raise\n");
    i = fence[0] + fence[1];
    if
    :: i && !fence[0] -> fence[0] = RAISED
    :: else
    fi;
    if
    :: i && !fence[1] && TO == 2 -> fence[1] = RAISED
    :: else
    fi;
    i = 0
  }
#endif
  if
  :: there[1] -> d_step { printf("EV set shard=1\n"); shards[1] = TO }
  :: !there[1] -> skip
  fi;
  d_step { printf("EV set shard=0\n"); shards[0] = TO; check() }
  /* 5. Drop the shards that are removed, and open the others, shard 0 last. */
  if
  :: TO == 1 ->
     d_step { printf("EV drop shard=1\n");
       there[1] = 0; fence[1] = 0; tracked[1] = 0; early[1] = 0; waiting[1] = 0;
       resharding[1] = 0; check() }
  :: else -> d_step { printf("EV open shard=1\n"); resharding[1] = 0 }
  fi;
  d_step { printf("EV open shard=0\n"); resharding[0] = 0 }
}

init {
  d_step {
    there[0] = 1; shards[0] = FROM; known = FROM;
    there[1] = (FROM == 2); shards[1] = (FROM == 2 -> 2 : 0);
    ready = 1
  }
}
