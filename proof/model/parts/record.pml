/*
 * The records of one shard, and what a row does to them: proof/reference/acker.py, _row.
 *
 * A record is in the buckets of home[], a bitmap: bit k is the bucket of age k, 0 is the newest.
 * So a record in two buckets can be seen. A tick makes each bucket older by one. The record that
 * a tick takes out waits in drains[] until it is drained: rows do not find it any more, and a new
 * record of the same anchor may begin beside it.
 *
 * Each variable that only the invariants read has a name that begins with "true_".
 * Needs BUCKETS, exists, ALL(t), IS_ZERO(set). Gives apply_row(), tick_record(), drain_record(),
 * check_record().
 */
#ifndef TREES
#define TREES 1
#endif
#ifndef BUCKETS
#define BUCKETS 3
#endif
mtype = { completed, failed, expired, conflict };

#define ONE(set) (((set) & ((set) - 1)) == 0)

byte home[TREES];        /* the buckets that its record is in */
short sum[TREES];        /* its checksum: a set of edge ids */
bit tracked[TREES];      /* its TRACK was applied */
bit failing[TREES];      /* its FAIL was applied */
byte drains[TREES];      /* 0; 1: an expired record without a tree waits, 2: with a tree */
#ifdef LIFE
byte left[TREES];        /* ticks until the first tick that is not before its deadline */
bit capped[TREES];       /* the deadline kept its last move out of the newest bucket */
#endif

byte n_tracked, n_acked, n_failed, n_expired, n_conflict;  /* the counters of meta */

byte true_done[TREES];   /* messages whose rows reached this record, */
bit true_twice[TREES];   /* and whether one of them did so twice */
bit true_failed[TREES];  /* a FAIL reached it */
bit true_track[TREES];   /* its TRACK reached it */
byte true_idle[TREES];   /* ticks since its clock was started */
#ifdef LIFE
byte true_age[TREES];    /* ticks since its first row */
#endif
byte verdicts[TREES];    /* verdicts written for it, touches aside; up to 3 */
byte tracks[TREES];      /* TRACKs applied that begin a tree; up to 3 */

hidden byte known;
hidden byte old_home;

inline count(c) { c++ }
inline more(c) { c = (c < 3 -> c + 1 : 3) }

/* The verdict: one for each tree. */
inline tell(t, what) {
  more(verdicts[t]);
  printf("EV verdict tree=%d reason=%e\n", t, what)
}

/* The record of t ends, in the buckets. */
inline forget(t) {
  home[t] = 0; sum[t] = 0; tracked[t] = 0; failing[t] = 0;
#ifdef LIFE
  left[t] = 0; capped[t] = 0; true_age[t] = 0;
#endif
  true_done[t] = 0; true_twice[t] = 0; true_failed[t] = 0; true_track[t] = 0; true_idle[t] = 0
}

/* No false ack: each message that exists was processed by a row of this very record. */
inline check_ack(t) {
  assert(true_track[t]);
  assert(!true_failed[t]);
  assert((exists & ~true_done[t]) == 0)
}

/* Keep what the record is owed, without reading the record: the oracle of this model. */
inline reached(t, done, track, fail) {
  if
  :: true_done[t] & (done) -> true_twice[t] = 1
  :: else
  fi;
  true_done[t] = true_done[t] | (done);
  true_track[t] = true_track[t] | (track);
  true_failed[t] = true_failed[t] | (fail)
}

/* No needless nack: a tree of which each message was processed once is acked by then. */
inline needless(t) {
#ifdef NEEDLESS
  assert(!(true_track[t] && !true_failed[t] && !true_twice[t]
    && exists == ALL(t) && true_done[t] == exists))
#else
  skip
#endif
}

#ifdef REFRESH
#define MOVES(fail, touch) 1
#else
#define MOVES(fail, touch) ((fail) || (touch))
#endif

inline begin_or_move(t, fail, touch) {
  if
  :: !known ->
     home[t] = 1; true_idle[t] = 0;
#ifdef LIFE
     left[t] = LIFE
#endif
  :: known && MOVES(fail, touch) ->
#ifdef LIFE
     /* The newest bucket that expires with the first tick that is not before the deadline. */
#ifdef BREAK_DEADLINE_FROM_LAST_ROW
     left[t] = LIFE;
#endif
     i = (left[t] > 1 -> left[t] : 1);
     i = (BUCKETS > i -> BUCKETS - i : 0);
#ifdef BREAK_DEADLINE_IGNORED
     i = 0;
#endif
     capped[t] = i > 0;
     true_idle[t] = (i > 0 -> true_idle[t] : 0);
#else
     i = 0;
#ifndef BREAK_TOUCH_IGNORED
     true_idle[t] = 0;
#endif
#endif
     old_home = home[t];
     /* Never to an older bucket. */
     home[t] = (home[t] & (BIT(i) - 1) -> home[t] : BIT(i));
#ifdef BREAK_MOVE_KEEPS_COPY
     home[t] = home[t] | old_home
#endif
  :: else
  fi
}

/* The row ends no tree: its record stays where it is, or moves, or begins. */
inline keep_row(t, track, fail, touch) {
  if
  :: !known && !tracked[t] && !failing[t] && sum[t] == 0 -> forget(t)  /* a no-op */
#ifdef BREAK_EARLY_ROWS_DROPPED
  :: !known && !tracked[t] && !(!failing[t] && sum[t] == 0) ->
     sum[t] = 0; failing[t] = 0
#endif
  :: else ->
     begin_or_move(t, fail, touch);
     needless(t)
  fi
}

/*
 * Apply one row to the record of t: a delta, a TRACK, a FAIL, a TOUCH. done: the messages whose
 * rows were folded into it.
 */
inline apply_row(t, delta, track, fail, touch, done) {
  known = home[t] != 0;
  if
  :: track && known && tracked[t] ->
     /* Two trees under one anchor: both end. It is the same source here, so they are one. */
     count(n_conflict);
#ifndef BREAK_SILENT_CONFLICT
     tell(t, conflict);
#endif
     forget(t)
  :: else ->
     reached(t, done, track, fail);
#ifdef BREAK_OR
     sum[t] = sum[t] | (delta);
#else
     sum[t] = sum[t] ^ (delta);
#endif
     failing[t] = failing[t] | (fail);
     if
     :: track -> tracked[t] = 1; count(n_tracked); more(tracks[t])
     :: else
     fi;
     if
#ifdef BREAK_ZERO_BEATS_FAIL
     :: tracked[t] && failing[t] && sum[t] ->
#else
     :: tracked[t] && failing[t] ->
#endif
        count(n_failed); tell(t, failed); forget(t)
     :: else ->
        if
        :: tracked[t] && IS_ZERO(sum[t]) ->
           check_ack(t);
           count(n_acked); tell(t, completed); forget(t)
        :: else -> keep_row(t, track, fail, touch)
        fi
     fi
  fi
}

#ifdef BREAK_EXPIRY_EARLY
#define EXPIRES BIT(BUCKETS - 1)
#else
#define EXPIRES BIT(BUCKETS)
#endif

/* A tree expires with the N-th tick after its clock was started, or with its deadline. */
inline check_age(t) {
#if defined(ENDS)
  skip
#elif defined(LIFE)
  assert((!capped[t] && true_idle[t] == BUCKETS && true_age[t] <= LIFE)
    || (capped[t] && true_age[t] == LIFE))
#else
  assert(true_idle[t] == BUCKETS)
#endif
}

/* Rotate, if no record waits for its drain. */
inline tick_record(t) {
#ifdef BREAK_TICK_BEFORE_DRAIN
  drains[t] = 0;
#endif
  if
  :: home[t] ->
     true_idle[t] = (true_idle[t] < 7 -> true_idle[t] + 1 : 7);
#ifdef LIFE
     true_age[t] = (true_age[t] < 15 -> true_age[t] + 1 : 15);
     left[t] = (left[t] -> left[t] - 1 : 0);
#endif
     home[t] = home[t] << 1;
     if
     :: home[t] & EXPIRES ->
#ifndef BREAK_NO_DRAIN
        drains[t] = 1 + tracked[t];
#endif
        check_age(t);
        i = home[t] & ~EXPIRES;
        if
        :: i == 0 -> forget(t)
        :: else -> home[t] = i
        fi
     :: else
     fi
  :: else
  fi
}
/* Drain: the rotator nacks the trees that have expired. */
inline drain_record(t) {
  if
  :: drains[t] == 2 -> count(n_expired); tell(t, expired)
  :: else
  fi;
  drains[t] = 0
}

/* The counters of meta, and no record in two buckets. */
inline check_record(t) {
  assert(ONE(home[t]));
  open_trees = open_trees + (home[t] && tracked[t]) + (drains[t] == 2)
}
