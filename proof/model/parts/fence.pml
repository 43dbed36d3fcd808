/*
 * Fences: the last number of each lane, and what it was sent with. lua/parts/fence.lua.
 *
 * A fence is in the newest bucket when it is written, and is dropped with the N-th tick after that.
 * A durable lane keeps its fence: no history of this model lasts 30 days.
 * Needs LANES, BUCKETS, durable(lane). Gives fenced, meet_fence(), remember(), tick_fence().
 */
byte fence_number[LANES];  /* 0: no fence */
byte fence_age[LANES];     /* ticks since it was written */
byte fence_digest[LANES];  /* what its batch held */

hidden byte fenced;        /* 0: new, 1: a repeat, 2: another content under the same number */

inline meet_fence(lane, number, digest) {
  fenced = 0;
#ifndef BREAK_NO_FENCE
  if
  :: fence_number[lane] && (number) <= fence_number[lane] ->
     fenced = 1;
#ifndef BREAK_NO_DIGEST
     fenced = ((number) == fence_number[lane] && (digest) != fence_digest[lane] -> 2 : 1)
#endif
  :: else
  fi
#endif
}

inline remember(lane, number, digest) {
  fence_number[lane] = number;
  fence_digest[lane] = digest;
  fence_age[lane] = 0
}

#ifdef BREAK_FENCE_EARLY
#define FENCE_TICKS (BUCKETS - 1)
#else
#define FENCE_TICKS BUCKETS
#endif

inline tick_fence(lane) {
  if
  :: fence_number[lane] && !durable(lane) ->
     fence_age[lane]++;
     if
     :: fence_age[lane] == FENCE_TICKS ->
        fence_number[lane] = 0; fence_age[lane] = 0; fence_digest[lane] = 0
     :: else
     fi
  :: else
  fi
}
