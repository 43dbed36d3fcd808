/** What is wrong with a namespace, and what to do about it. Pure. */

import { compact, count, duration, percent, plural } from "../core/format.js";

/** @typedef {{level: "over" | "high" | "info", title: string, detail: string}} Finding */

/** Lag that is forgiven, as /readyz does it: a rotator looks every second. */
const LEAST_LAG_MS = 5000;

/**
 * @param {import("./types.js").Status} status
 * @returns {Finding[]} the worst first; none: it is healthy
 */
export function diagnose(status) {
  /** @type {Finding[]} */
  const found = [];
  const mark = status.config.high_water;
  if (status.high_water === "over") {
    found.push({
      level: "over",
      title: "Over twice the high-water mark: new trees are nacked",
      detail: `${count(status.pending)} are pending, the mark is ${count(mark)}. Bolts are slower `
        + "than sources, or hang: look at the oldest trees.",
    });
  } else if (status.high_water === "high") {
    found.push({
      level: "high",
      title: "Above the high-water mark: sources wait",
      detail: `The fullest shard holds ${percent(status.high_water_ratio)} of its share of `
        + `${count(mark)}. At twice the mark new trees are nacked.`,
    });
  }
  if (rotator(status).level === "over") {
    found.push({
      level: "over",
      title: `The rotator is away: a tick is overdue by ${duration(status.lag_ms)}`,
      detail: "Nothing expires meanwhile, and what hangs is not told of. "
        + "Start one: acker-redis rotator --all",
    });
  }
  for (const [task, waiting] of Object.entries(status.backlog)) {
    const part = waiting / status.config.outcomes_limit;
    if (part < 0.5) continue;
    found.push({
      level: part >= 1 ? "over" : "high",
      title: part >= 1 ? `The source ${task} can track no more` : `The source ${task} falls behind`,
      detail: `${compact(waiting)} verdicts wait for it, of ${compact(status.config.outcomes_limit)} `
        + "that may. Does it run?",
    });
  }
  if (status.moving_to !== null && status.moving_to !== undefined) {
    found.push({
      level: "info",
      title: "The namespace moves to another number of shards",
      detail: "Nothing new is tracked until it has moved.",
    });
  }
  if (status.expiring > 0) {
    found.push({
      level: "info",
      title: "A bucket is being drained",
      detail: `${plural(status.expiring, "record")} wait to be told as expired.`,
    });
  }
  const order = { over: 0, high: 1, info: 2 };
  return found.sort((a, b) => order[a.level] - order[b.level]);
}

/**
 * How the rotator does.
 *
 * @param {Pick<import("./types.js").Status, "lag_ms" | "config">} status
 * @returns {{level: "ok" | "high" | "over", words: string}}
 */
export function rotator({ lag_ms, config }) {
  if (lag_ms > Math.max(config.tick_ms, LEAST_LAG_MS)) return { level: "over", words: "Away" };
  if (lag_ms > Math.min(1000, config.tick_ms)) return { level: "high", words: "Late" };
  return { level: "ok", words: "On time" };
}

/**
 * The worst of some findings.
 *
 * @param {Finding[]} findings
 * @returns {"ok" | "high" | "over"}
 */
export function worst(findings) {
  if (findings.some((each) => each.level === "over")) return "over";
  return findings.some((each) => each.level === "high") ? "high" : "ok";
}
