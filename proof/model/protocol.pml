/*
 * The protocol: lanes, fences and buckets under faults.
 *
 * One tree, any topology of up to MESSAGES messages, one source, and BOLTS bolts on lanes of their
 * own. Any bolt process may process any of its messages at any time, and send what it has processed
 * as one batch. Time is counted in ticks, and there is no end of them.
 *
 * Faults: requests and replies are lost, and lanes send the batch again until its horizon; COPIES
 * requests are delayed in the network and arrive at any later time, also past the horizon, so they
 * are duplicated and reordered as well; bolts lose what they have not sent and give batches up;
 * messages are never processed. By switches:
 *
 *   REDELIVERIES  that many messages are processed once more, by any bolt
 *   FAILS         bolts fail messages
 *   FAILOVER      the shard goes back to an earlier state, once
 *   DRIVER        the last bolt is a driver with a durable lane: it dies at any time, and runs its
 *                 batch again, under the same number; it emits once its batch was applied
 *   OTHER_PLAN    a batch of the driver that runs again may announce other messages
 *   DURABLE       all lanes are durable: fences and batches have no horizon
 *   UNTIL_END     the first verdict ends the history
 *   LIFE          rows and TOUCHes move the tree, up to a deadline of LIFE ticks
 */
#ifndef BOLTS
#define BOLTS 2
#endif
#ifndef COPIES
#define COPIES 1
#endif
#ifndef REDELIVERIES
#define REDELIVERIES 0
#endif
#define LANES (BOLTS + 1)
#define SOURCE 0
#define IS_ZERO(set) ((set) == 0)
#define ALL(t) (BIT(n) - 1)
#ifdef UNTIL_END
#define OVER (verdicts[0] > 0)
#else
#define OVER 0
#endif

#include "parts/topology.pml"
#include "parts/record.pml"
#ifdef DRIVER
#if defined(BREAK_DRIVER_NOT_DURABLE)
#define durable(lane) 0
#else
#define durable(lane) ((lane) == BOLTS)
#endif
#define drives(lane) ((lane) == BOLTS)
#else
#ifdef DURABLE
#define durable(lane) 1
#else
#define durable(lane) 0
#endif
#define drives(lane) 0
#endif
#include "parts/fence.pml"

byte processed;          /* messages that were processed or failed */
byte refused;            /* messages whose rows are FAILs */
byte redelivered;

/* A lane: its open rows, and one batch in flight. The batch of the source is the TRACK. */
byte open[LANES];        /* messages whose rows wait for a batch */
byte batch[LANES];       /* messages whose rows are in the batch */
bit sending[LANES];      /* a batch is in flight: its lane has no reply yet */
byte number[LANES];      /* of the last batch */
byte since[LANES];       /* ticks since it was first sent; BUCKETS: its horizon has passed */
bit true_applied[LANES]; /* the batch in flight was applied */
#ifdef DRIVER
bit barren[LANES];       /* the batch announces no messages: the other plan of a driver */
bit dead;                /* the driver runs no more until it is started again */
#endif

/* A request that the network holds back. */
byte late_lane;          /* 0: none; lane + 1 */
byte late_number, late_batch;
#ifdef DRIVER
bit late_barren;
#endif

#ifdef FAILOVER
byte failovers;          /* 0: none yet; 1: an older state is kept; 2: the shard went back to it */
#define ROLLED (failovers == 2)
#else
#define ROLLED 0
#endif

hidden short delta;
hidden byte open_trees, reply, m1;
#define OPEN ((home[0] != 0 && tracked[0]) || drains[0] == 2)
bit ready;

#ifdef DRIVER
#define PLAN(lane) barren[lane]
#define LATE_PLAN late_barren
#else
#define PLAN(lane) 0
#define LATE_PLAN 0
#endif
#define DIGEST(rows, plan) ((rows) | ((plan) << 6))

#define APPLIED 1
#define REPEATED 2
#define CHANGED 3

/* The invariants that hold after each step. */
inline check() {
  open_trees = 0;
  check_record(0);
  assert(n_tracked == n_acked + n_failed + n_expired + n_conflict + open_trees);
  assert(ROLLED || tracks[0] == 3 || verdicts[0] + open_trees == tracks[0])
}

/* The script apply: the fence, then the rows. Sets reply. */
inline apply(lane, num, rows, plan, late) {
  meet_fence(lane, num, DIGEST(rows, plan));
  if
  :: fenced == 1 -> reply = REPEATED
  :: fenced == 2 -> reply = CHANGED
  :: else ->
     reply = APPLIED;
     remember(lane, num, DIGEST(rows, plan));
     if
     :: (num) == number[lane] ->
        /* A batch is applied once. A request that arrives past the horizon may meet no fence. */
        assert(!true_applied[lane] || ROLLED
          || (late && since[lane] >= BUCKETS && !drives(lane)));
        true_applied[lane] = 1
     :: else
     fi;
     delta = ((lane) == SOURCE -> first : 0);
     i = 0;
     do
     :: i < n ->
        if
        :: (rows) & BIT(i) -> delta = delta ^ ((plan) -> own[i] : row[i])
        :: else
        fi;
        i++
     :: else -> break
     od;
     apply_row(0, delta, ((lane) == SOURCE), (((rows) & refused) != 0), 0, rows)
  fi;
  printf("EV applied reply=%d\n", reply);
  check()
}

/* The lane has its reply, or gives its batch up. */
inline finish(lane) {
  sending[lane] = 0; batch[lane] = 0; since[lane] = BUCKETS;
#ifdef DRIVER
  barren[lane] = 0
#endif
}

/* The bolt sends the messages that follow from its batch. */
inline emit_batch(lane) {
  j = 0;
  do
  :: j < n ->
     if
     :: (batch[lane] & BIT(j)) && !PLAN(lane) -> emit(j)
     :: else
     fi;
     j++
  :: else -> break
  od;
  j = 0
}

#if defined(BREAK_RETRY_PAST_HORIZON)
#define MAY_SEND(lane) (!OVER && sending[lane])
#else
#define MAY_SEND(lane) (!OVER && sending[lane] && (since[lane] < BUCKETS || drives(lane)))
#endif

/* A lane that has a batch in flight. */
#define CALLS(lane) \
  /* The request arrives, and the reply as well. */ \
  :: d_step { MAY_SEND(lane) -> \
       printf("EV call lane=%d number=%d rows=%d plan=%d reply=1\n", lane, number[lane], \
         batch[lane], PLAN(lane)); \
       apply(lane, number[lane], batch[lane], PLAN(lane), 0); \
       answer(lane); finish(lane) } \
  /* The reply is lost: the lane sends the batch again, or gives it up. */ \
  :: d_step { MAY_SEND(lane) -> \
       printf("EV call lane=%d number=%d rows=%d plan=%d reply=0\n", lane, number[lane], \
         batch[lane], PLAN(lane)); \
       apply(lane, number[lane], batch[lane], PLAN(lane), 0) } \
  /* The request is delayed: the lane sends the batch again, or gives it up. */ \
  :: d_step { MAY_SEND(lane) && COPIES && late_lane == 0 -> \
       printf("EV delay lane=%d number=%d rows=%d plan=%d\n", lane, number[lane], batch[lane], \
         PLAN(lane)); \
       hold(lane) } \
  :: d_step { !OVER && sending[lane] && !drives(lane) -> \
       printf("EV give_up lane=%d number=%d\n", lane, number[lane]); finish(lane) }

inline hold(lane) {
  late_lane = lane + 1; late_number = number[lane]; late_batch = batch[lane];
#ifdef DRIVER
  late_barren = barren[lane]
#endif
}

inline answer(lane) {
#ifdef DRIVER
  if
  :: drives(lane) && reply == CHANGED -> dead = 1  /* ChangedBatchError: the query stops */
#ifndef BREAK_EMIT_BEFORE_APPLY
  :: drives(lane) && reply != CHANGED -> emit_batch(lane)
#endif
  :: else
  fi
#else
  skip
#endif
}

active proctype source() {
  (ready);
end:
  do
  CALLS(SOURCE)
#ifdef TOUCHES
  :: d_step { home[0] -> printf("EV touch\n"); apply_row(0, 0, 0, 0, 1, 0); check() }
#endif
  od
}

#if MESSAGES == 1
#define EACH(option, b) option(0, b)
#elif MESSAGES == 2
#define EACH(option, b) option(0, b) option(1, b)
#elif MESSAGES == 3
#define EACH(option, b) option(0, b) option(1, b) option(2, b)
#else
#define EACH(option, b) option(0, b) option(1, b) option(2, b) option(3, b)
#endif
#define WAITS(m, b) (!OVER && m < n && (exists & BIT(m)) && !(processed & BIT(m)) && by[m] == b)
#define PROCESS(m, b) \
  :: d_step { WAITS(m, b) && ALIVE(b) -> \
       printf("EV process m=%d bolt=%d\n", m, b); take_message(m, b) }
#define REFUSE(m, b) \
  :: d_step { WAITS(m, b) && ALIVE(b) -> \
       printf("EV spoil m=%d bolt=%d\n", m, b); \
       refused = refused | BIT(m); take_message(m, b) }
#define AGAIN(m, b) \
  :: d_step { !OVER && (processed & BIT(m)) && redelivered < REDELIVERIES -> \
       printf("EV process m=%d bolt=%d again=1\n", m, b); \
       redelivered++; open[b] = open[b] ^ BIT(m) }
#ifdef DRIVER
#define ALIVE(b) (!dead || !drives(b))
#else
#define ALIVE(b) 1
#endif

inline take_message(m, b) {
  processed = processed | BIT(m);
  open[b] = open[b] | BIT(m);
#ifndef BREAK_EMIT_BEFORE_APPLY
  if
  :: !drives(b) -> emit(m)
  :: else
  fi
#else
  emit(m)
#endif
}

proctype bolt(byte b) {
end:
  do
  EACH(PROCESS, b)
#ifdef FAILS
  EACH(REFUSE, b)
#endif
#if REDELIVERIES
  EACH(AGAIN, b)
#endif
  :: d_step { !OVER && !sending[b] && open[b] && ALIVE(b) ->
       batch[b] = open[b]; open[b] = 0;
       number[b]++; since[b] = 0; sending[b] = 1; true_applied[b] = 0;
       printf("EV batch lane=%d number=%d rows=%d\n", b, number[b], batch[b]) }
  CALLS(b)
#ifdef OTHER_PLAN
  :: d_step { drives(b) && sending[b] ->
       barren[b] = 1 - barren[b]; printf("EV rerun lane=%d plan=%d\n", b, barren[b]) }
#endif
#ifdef BREAK_RERUN_NEW_NUMBER
  :: d_step { drives(b) && sending[b] && number[b] < 3 ->
       number[b]++; printf("EV rerun lane=%d number=%d\n", b, number[b]) }
#endif
  od
}

inline forget_late() {
  late_lane = 0; late_number = 0; late_batch = 0;
#ifdef DRIVER
  late_barren = 0
#endif
}

active proctype network() {
  (ready);
end:
  do
  :: d_step { !OVER && late_lane ->
       m1 = late_lane - 1;
       printf("EV arrive lane=%d number=%d rows=%d plan=%d\n", m1, late_number, late_batch,
         LATE_PLAN);
       apply(m1, late_number, late_batch, LATE_PLAN, 1); forget_late() }
  :: d_step { !OVER && late_lane -> printf("EV lose lane=%d\n", late_lane - 1); forget_late() }
  od
}

active proctype rotator() {
  (ready);
end:
  do
#ifdef BREAK_TICK_BEFORE_DRAIN
  :: d_step { 1 ->
#else
  :: d_step { !OVER && drains[0] == 0 ->
#endif
       printf("EV tick\n");
       tick_record(0);
       j = 0;
       do
       :: j < LANES ->
          tick_fence(j);
          if
          :: sending[j] && since[j] < BUCKETS && !durable(j) -> since[j]++
          :: else
          fi;
          j++
       :: else -> break
       od;
       check() }
  :: d_step { drains[0] -> printf("EV drain\n"); drain_record(0); check() }
  od
}

#ifdef FAILOVER
/* An older state of the shard: what a replica has when it stops replicating. */
byte kept_home, old_drains, old_done, old_idle;
short old_sum;
bit old_tracked, old_failing, old_twice, old_failed, old_track;
byte old_n_tracked, old_n_acked, old_n_failed, old_n_expired, old_n_conflict;
byte old_number[LANES], old_age[LANES], old_digest[LANES];

#include "parts/failover.pml"
#endif

init {
  atomic {
    draw_topology();
    number[SOURCE] = 1; sending[SOURCE] = 1;
    run bolt(1);
#if BOLTS > 1
    run bolt(2);
#endif
    ready = 1
  }
}

#ifdef ENDS
/* Every tracked tree ends, once rotators run. */
ltl ends { [] (OPEN -> <> !OPEN) }
#endif
