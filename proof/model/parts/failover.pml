/*
 * Failover: a replica that lacks the last writes takes over. The shard goes back to an older state,
 * with its records, fences and counters. Verdicts that were taken are not taken back, and the bolts
 * remember what they have done.
 */
inline keep_state() {
  kept_home = home[0]; old_drains = drains[0]; old_sum = sum[0];
  old_tracked = tracked[0]; old_failing = failing[0];
  old_done = true_done[0]; old_twice = true_twice[0];
  old_failed = true_failed[0]; old_track = true_track[0]; old_idle = true_idle[0];
  old_n_tracked = n_tracked; old_n_acked = n_acked; old_n_failed = n_failed;
  old_n_expired = n_expired; old_n_conflict = n_conflict;
  j = 0;
  do
  :: j < LANES ->
     old_number[j] = fence_number[j]; old_age[j] = fence_age[j];
     old_digest[j] = fence_digest[j]; j++
  :: else -> break
  od;
  j = 0
}

inline forget_old_state() {
  kept_home = 0; old_drains = 0; old_sum = 0; old_tracked = 0; old_failing = 0;
  old_done = 0; old_twice = 0; old_failed = 0; old_track = 0; old_idle = 0;
  old_n_tracked = 0; old_n_acked = 0; old_n_failed = 0; old_n_expired = 0; old_n_conflict = 0;
  j = 0;
  do
  :: j < LANES -> old_number[j] = 0; old_age[j] = 0; old_digest[j] = 0; j++
  :: else -> break
  od;
  j = 0
}

inline go_back() {
  home[0] = kept_home; drains[0] = old_drains; sum[0] = old_sum;
  tracked[0] = old_tracked; failing[0] = old_failing;
  true_done[0] = old_done; true_twice[0] = old_twice;
  true_failed[0] = old_failed; true_track[0] = old_track; true_idle[0] = old_idle;
  n_tracked = old_n_tracked; n_acked = old_n_acked; n_failed = old_n_failed;
  n_expired = old_n_expired; n_conflict = old_n_conflict;
  j = 0;
  do
  :: j < LANES ->
     fence_number[j] = old_number[j]; fence_age[j] = old_age[j];
     fence_digest[j] = old_digest[j]; j++
  :: else -> break
  od;
  forget_old_state()
}

active proctype replica() {
  (ready);
end:
  do
  :: d_step { failovers == 0 && !OVER -> printf("EV snapshot\n"); failovers = 1; keep_state() }
  :: d_step { failovers == 1 -> printf("EV failover\n"); failovers = 2; go_back(); check() }
  od
}
