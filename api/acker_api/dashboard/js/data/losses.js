/** What a namespace lost in the last minutes, in words. The service judges whether that is too much. Pure. */

import { count, moment } from "../core/format.js";

/**
 * @typedef {object} Losses
 * @property {number} ended trees that ended in the last minutes
 * @property {number} nacked
 * @property {number} over_ms
 * @property {number} [since_ms] when the nacks began, if the page has read it
 * @property {boolean} [since_known] false: they may have begun earlier
 * @property {number} target_percent
 */

/**
 * Return the recent nacks of a state; null if there are none.
 *
 * @param {import("./types.js").Status} status
 * @param {{since_ms: number, since_known: boolean} | null} began
 * @returns {Losses | null}
 */
export function lossesOf({ recent, config }, began) {
  return recent?.nacked ? { ...recent, ...began, target_percent: config.slo_target ?? 99 } : null;
}

/**
 * Return the recent nacks as a sentence; "" if there are none.
 *
 * @param {Losses | null} losses
 * @param {Record<string, number> | null} expired recently expired trees by edge, "" for no edge
 */
export function lossWords(losses, expired) {
  if (!losses || !losses.ended) return "";
  const { ended, nacked, over_ms: over, since_ms: since, target_percent: target } = losses;
  const began = !Number.isInteger(since) ? "" : ` There are nacks ${losses.since_known ? "since" : "at least since"} ${moment(since)}.`;
  return `${count(nacked)} of the ${count(ended)} trees that ended in the last ${minutes(over)} min were nacked (${share(nacked / ended)}): `
    + `their sources replay them or give them up.${began}${onEdge(expired)} `
    + `The target permits ${100 * nacked > permitted(target) * ended ? "only " : ""}${permitted(target)} %.`;
}

/** @param {Losses} losses */
export function lately({ over_ms: over }) {
  return `in the last ${minutes(over)} min`;
}

/** @param {number} target in percent */
function permitted(target) {
  return Math.round((100 - target) * 1000) / 1000;
}

/** @param {number} ms */
function minutes(ms) {
  return Math.max(1, Math.round(ms / 60_000));
}

/** @param {number} part */
function share(part) {
  const percent = part * 100;
  return percent < 0.01 ? "less than 0.01 %" : `${percent.toFixed(percent < 10 ? 2 : 0)} %`;
}

/** @param {Record<string, number> | null} expired */
function onEdge(expired) {
  const found = Object.entries(expired || {}).filter(([, trees]) => trees);
  const all = found.reduce((sum, [, trees]) => sum + trees, 0);
  const [edge, most] = found.sort((one, other) => other[1] - one[1])[0] || ["", 0];
  return edge && most * 2 > all ? ` Most expired trees lack an ack on edge ${edge}: look at the program that reads it.` : "";
}
