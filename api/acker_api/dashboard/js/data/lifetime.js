/** When trees expire, from the state of the namespace. Pure. */

/** @typedef {import("./types.js").Status} Status */

/**
 * @typedef {object} Expiry
 * @property {number} at when it expires at the latest, by Redis's clock, in ms
 * @property {number} ms until then; negative: the rotator is late
 * @property {number} ticks with which tick from now: 1 is the next
 * @property {number} deadline ms since 1970; 0: none
 */

/**
 * Return when a record expires at the latest, if no row arrives.
 *
 * @param {Status} status
 * @param {number} bucket of the record
 * @param {number} first time of its first row
 * @returns {Expiry}
 */
export function expiry({ shards, config }, bucket, first) {
  const ticks = Math.max(1, config.buckets - bucket);
  const ticked = Math.max(...shards.map((each) => each.ticked_ms));
  const at = ticked + ticks * config.tick_ms;
  const deadline = config.refresh === "update" && config.deadline_ms ? first + config.deadline_ms : 0;
  return { at, ms: at - shards[0].now_ms, ticks, deadline };
}

/**
 * @typedef {object} Shorter
 * @property {[number, number]} now a tree expires after more than the first and at most the second, in ms
 * @property {[number, number]} then the same with the new tick
 * @property {number} due places in the oldest bucket of the shards whose next tick is due at once
 * @property {number} pending places in all buckets
 */

/**
 * Return the effects of another tick on the pending trees.
 *
 * @param {Status} status
 * @param {number} tick in ms
 * @returns {Shorter}
 */
export function withTick({ shards, config }, tick) {
  const span = (ms) => /** @type {[number, number]} */ ([(config.buckets - 1) * ms, config.buckets * ms]);
  const due = shards.filter((each) => each.now_ms >= each.ticked_ms + tick);
  const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);
  return { now: span(config.tick_ms), then: span(tick), due: sum(due.map((each) => each.pending.at(-1) || 0)),
    pending: sum(shards.map((each) => sum(each.pending))) };
}
