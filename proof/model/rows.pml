/*
 * Truth: no network can make an ack false, as long as clients send whole rows.
 *
 * One tree, any topology of up to MESSAGES messages. The network may bring each row, the TRACK and
 * each FAIL at any time, in any order, and any number of times, or never. There is no fence. So
 * this covers loss, duplication, reordering, batches that are sent again, bolts and drivers that
 * die and run again with the same ids, and shards that fail over to an older state: such a state is
 * one in which the later rows were lost. A record may vanish at any time, by expiry or at the
 * high-water mark.
 *
 * FIELD: ids are also drawn, as numbers of FIELD bits, and the checksum is the XOR of numbers.
 * Then a checksum can be zero although ids are in it: a collision. The model tells a collision from
 * a fault: an early ack without a collision is a fault.
 */
#define IS_ZERO(set) zero(set)
#ifdef FIELD
#define zero(set) (xor == 0)
#else
#define zero(set) ((set) == 0)
#endif

#include "parts/topology.pml"

#ifdef FIELD
#define LINKS 7
byte number[LINKS];      /* the number of each edge id */
hidden byte xor, k;
hidden byte collides;
#endif

byte processed;          /* messages that a bolt has processed */
byte refused;            /* messages that a bolt has failed, without processing them, */
byte spoiled;            /* and those that count as processed: FAIL and delta are in one row */
#ifdef BREAK_NEW_IDS
bit strays;              /* messages exist that no row will ever announce */
#endif

/* The record, and the messages whose rows have reached it. */
bit tracked, failing;
short sum;
byte done;

hidden byte early;
bit ready;

#ifdef FIELD
inline weigh(set) {
  xor = 0; k = 0;
  do
  :: k < LINKS -> xor = xor ^ ((set) & BIT(k) -> number[k] : 0); k++
  :: else -> break
  od
}
#else
#define weigh(set) skip
#endif

#ifdef FIELD
/* Each edge id of the tree gets a number that is not zero. */
inline draw_numbers() {
  do
  :: k < links ->
#ifdef BREAK_COUNTED_IDS
     number[k] = k + 1;
#else
     number[k] = 1;
     do
     :: number[k] < BIT(FIELD) - 1 -> number[k]++
     :: break
     od;
#endif
     k++
  :: else -> k = 0; break
  od
}
#endif

inline forget() {
  tracked = 0; failing = 0; sum = 0; done = 0
}

inline apply_row(delta, track, fail, which) {
  if
  :: track && tracked -> printf("EV verdict reason=conflict\n"); forget()  /* both trees end */
  :: else ->
     sum = sum ^ (delta);
     done = done | (which);
     tracked = tracked | track;
#ifdef BREAK_EARLY_FAIL_FORGOTTEN
     failing = failing | (fail && tracked);
#else
     failing = failing | fail;
#endif
     weigh(sum);
     if
     :: tracked && failing -> printf("EV verdict reason=failed\n"); forget()
     :: else ->
        if
        :: tracked && IS_ZERO(sum) ->
           early = (exists & ~done) != 0 || (refused | spoiled) != 0;
#ifdef BREAK_NEW_IDS
           early = early || strays;
#endif
           printf("EV verdict reason=completed early=%d\n", early);
#ifdef FIELD
           collides = sum != 0;
           assert(!early || collides);   /* a fault */
#ifdef COLLISIONS
           assert(!early);               /* a collision */
#endif
#else
           assert(!early);
#endif
           forget()
        :: !tracked && !failing && sum == 0 -> forget()
        :: else
        fi
     fi
  fi
}

/* Spin has no choice from a set: one option for each message. */
#if MESSAGES == 3
#define EACH(option) option(0) option(1) option(2)
#elif MESSAGES == 4
#define EACH(option) option(0) option(1) option(2) option(3)
#else
#define EACH(option) option(0) option(1) option(2) option(3) option(4)
#endif
#define FREE(m) (m < n && (exists & BIT(m)) && !((processed | refused) & BIT(m)))
#define HAS(set, m) ((set) & BIT(m))

/* A bolt processes a message: then it has emitted all messages that follow from it. */
#define PROCESS(m) \
  :: d_step { FREE(m) -> \
       printf("EV process m=%d\n", m); processed = processed | BIT(m); emit(m) }
/* A bolt fails a message, before it has emitted anything, or after that. */
#define REFUSE(m) \
  :: d_step { FREE(m) -> printf("EV refuse m=%d\n", m); refused = refused | BIT(m) }
#define SPOIL(m) \
  :: d_step { FREE(m) -> \
       printf("EV spoil m=%d\n", m); \
       processed = processed | BIT(m); spoiled = spoiled | BIT(m); emit(m) }
/* A bolt emits the messages that follow from a message, and dies before it sends its row. */
#define STRAY(m) \
  :: d_step { FREE(m) && row[m] != own[m] -> printf("EV stray m=%d\n", m); strays = 1 }

active proctype bolts() {
  (ready);
end:
  do
  EACH(PROCESS)
  EACH(REFUSE)
  EACH(SPOIL)
#ifdef BREAK_NEW_IDS
  EACH(STRAY)
#endif
  od
}

/* Rule 1: the row of a message is one: its own id and those of the messages it caused. */
#ifdef BREAK_SPLIT_ROWS
#define ROW(m) \
  :: d_step { HAS(processed, m) && !HAS(spoiled, m) -> printf("EV ack m=%d\n", m); \
       apply_row(own[m], 0, 0, BIT(m)) } \
  :: d_step { HAS(processed, m) && row[m] != own[m] -> printf("EV anchor m=%d\n", m); \
       apply_row(row[m] ^ own[m], 0, 0, 0) }
#else
#define ROW(m) \
  :: d_step { HAS(processed, m) && !HAS(spoiled, m) -> printf("EV row m=%d\n", m); \
       apply_row(row[m], 0, 0, BIT(m)) }
#endif
#define FAIL(m) \
  :: d_step { HAS(refused, m) -> printf("EV fail m=%d\n", m); apply_row(0, 0, 1, 0) } \
  :: d_step { HAS(spoiled, m) -> printf("EV fail_row m=%d\n", m); apply_row(row[m], 0, 1, BIT(m)) }

/* What was sent stays in the network for ever. */
active proctype network() {
  (ready);
end:
  do
#ifdef BREAK_LATE_FIRSTS
  /* Rule 3: one TRACK carries all the first messages. */
  :: d_step { printf("EV track\n"); apply_row(own[0], 1, 0, 0) }
  :: d_step { first != own[0] -> printf("EV announce\n"); apply_row(first ^ own[0], 0, 0, 0) }
#else
  :: d_step { printf("EV track\n"); apply_row(first, 1, 0, 0) }
#endif
  EACH(ROW)
  EACH(FAIL)
  :: d_step { tracked || failing || sum -> printf("EV vanish\n"); forget() }
  od
}

init {
  atomic {
    draw_topology();
#ifdef FIELD
    draw_numbers();
#endif
    ready = 1
  }
}
