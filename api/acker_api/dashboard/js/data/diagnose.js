/** What is wrong with a namespace, and what to do about it. Pure. */

import { about, count, duration, percent, plural, rate } from "../core/format.js";

/** @typedef {import("./types.js").Status} Status */
/** @typedef {import("./history.js").Change} Change */

/**
 * @typedef {object} Finding
 * @property {string} key what it is, however its figures change
 * @property {"over" | "high" | "info"} level
 * @property {string} title
 * @property {string} detail what it means, and what to do
 * @property {string} [command] what to run
 * @property {{text: string, tab: string, query?: Record<string, string>}} [link] where to look
 * @property {number} [since] Redis's clock, ms, where it tells by itself
 */

/** Lag that is forgiven, as /readyz does it: a rotator looks every second. */
const LEAST_LAG_MS = 5000;

/** So long it is looked at before anything is said of verdicts that do not come. */
const STALL_SECONDS = 45;
/** Fewer nacks are no sign of anything. */
const LEAST_NACKS = 10;
/** Sooner than this it is seen by itself. */
const LEAST_SOON_MS = 5000;
const NACKS = ["failed", "expired", "overflow", "conflict"];
const OLDEST = { text: "Look at the oldest trees", tab: "trees" };

/**
 * @param {Status} status
 * @param {Change | null} [change] what has happened lately, if it was looked at
 * @param {Change | null} [now] and just now: how fast it fills
 * @returns {Finding[]} the worst first; none: it is healthy
 */
export function diagnose(status, change = null, now = change) {
  const found = [...water(status, now), ...rotation(status), ...backlog(status), ...verdicts(status, change)];
  const moving = status.moving_to;
  if (moving !== null && moving !== undefined) {
    found.push({
      key: "moving", level: "info", title: `Moves to ${plural(Number(moving), "shard")}: nothing is tracked until then`,
      detail: status.pending
        ? `It waits until the ${plural(status.pending, "pending tree")} ${status.pending === 1 ? "has its verdict" : "have their verdicts"}, `
          + "and sources wait for it. To call it off:"
        : "Sources wait for it. If it does not go on, run it again. To call it off:",
      command: `acker-redis migrate ${status.namespace} --cancel`,
    });
  }
  if (status.expiring > 0) {
    found.push({
      key: "draining", level: "info", title: "A bucket is being drained",
      detail: `${plural(status.expiring, "record")} wait to be told as expired.`,
    });
  }
  const order = { over: 0, high: 1, info: 2 };
  return found.sort((a, b) => order[a.level] - order[b.level]);
}

/** @param {Status} status @param {Change | null} change @returns {Finding[]} */
function water({ high_water: level, high_water_ratio: ratio, pending, config }, change) {
  const mark = config.high_water;
  const speed = change && change.seconds >= 5 ? change.pending / change.seconds : 0;
  if (level === "over") {
    return [{
      key: "over", level: "over", title: "Over twice the high-water mark: new trees are nacked",
      detail: `${count(pending)} are pending, the mark is ${count(mark)}${fall((ratio - 2) * mark, speed, "twice the mark")}. `
        + "Bolts are slower than sources, or hang.", link: OLDEST,
    }];
  }
  if (level !== "high") return [];
  // The fullest shard counts; they are taken to grow alike.
  const left = (2 - ratio) * mark;
  const rise = speed > 0 && left > 0
    ? ` It grows by ${rate(speed)} a second: there in about ${about(1000 * left / speed)}.` : "";
  return [{
    key: "high", level: "high", title: "Above the high-water mark: sources wait",
    detail: `The fullest shard holds ${percent(ratio)} of its share of ${count(mark)}`
      + `${fall((ratio - 1) * mark, speed, "the mark")}. At twice the mark new trees are nacked.${rise}`, link: OLDEST,
  }];
}

/** How soon it is below some line again. */
function fall(above, speed, line) {
  const ms = speed < 0 && above > 0 ? 1000 * above / -speed : 0;
  return ms >= LEAST_SOON_MS ? `; below ${line} in about ${about(ms)} at this rate` : "";
}

/** @param {Status} status @returns {Finding[]} */
function rotation(status) {
  if (rotator(status).level !== "over") return [];
  const now = status.shards?.[0]?.now_ms;
  return [{
    key: "rotator", level: "over", title: `The rotator is away: a tick is overdue by ${duration(status.lag_ms)}`,
    detail: "Nothing expires meanwhile, and what hangs is not told of. Start one:",
    command: "acker-redis rotator --all", since: now ? now - status.lag_ms : undefined,
  }];
}

/** @param {Status} status @returns {Finding[]} */
function backlog(status) {
  const limit = status.config.outcomes_limit;
  return Object.entries(status.backlog).filter(([task]) => fullness(status, task) >= 0.5).map(([task, each]) => {
    const fullest = fullness(status, task);
    const full = fullest >= 1;
    const uneven = fullest > 1.1 * each / limit ? `, ${percent(fullest)} of its share on the fullest shard` : "";
    return {
      key: `backlog ${task}`, level: /** @type {"over" | "high"} */ (full ? "over" : "high"),
      title: full ? `The source ${isolated(task)} can track no more` : `The source ${isolated(task)} falls behind`,
      detail: `${count(each)} verdicts wait for it, of ${count(limit)} that may${uneven}. `
        + "Start it if it does not run: it takes them as it goes on.",
    };
  });
}

/**
 * How much of what may wait for a source does, on its fullest shard: each shard has its share, and
 * refuses what is tracked when that is full.
 *
 * @param {Pick<Status, "backlog" | "backlog_ratio" | "config">} status
 * @param {string} task
 */
export function fullness({ backlog: waiting, backlog_ratio: ratios, config }, task) {
  return ratios?.[task] ?? waiting[task] / config.outcomes_limit;
}

/** What the verdicts of late tell. @param {Status} status @param {Change | null} change @returns {Finding[]} */
function verdicts({ pending, pending_by_bucket: buckets, moving_to: moving }, change) {
  if (!change) return [];
  const { acked } = change.counted;
  const nacked = NACKS.map((name) => /** @type {[string, number]} */ ([name, change.counted[name] || 0])).filter(([, each]) => each > 0);
  const all = nacked.reduce((sum, [, each]) => sum + each, 0);
  const span = duration(1000 * change.seconds);
  if (all >= LEAST_NACKS && all > acked) {
    return [{
      key: "nacks", level: "high", title: "More trees are nacked than acked",
      detail: `In the last ${span}: ${nacked.map(([name, each]) => `${count(each)} ${name}`).join(", ")}; ${count(acked)} acked. `
        + "Recent failures tells why.",
    }];
  }
  // What came just now may take its time; what is a tick old and still here waits for somebody.
  const waits = (buckets || []).slice(1).reduce((sum, each) => sum + each, 0);
  if (pending && waits && !acked && change.seconds >= STALL_SECONDS && (moving === null || moving === undefined)) {
    return [{
      key: "stalled", level: "high", title: "Nothing is acked",
      detail: `${plural(pending, "tree")} ${pending === 1 ? "is" : "are"} pending, and none was acked in the last ${span}. `
        + "Do the bolts run?", link: OLDEST,
    }];
  }
  return [];
}

/** A name in a sentence: it turns nothing around it, and its own marks of direction are left out. */
function isolated(name) {
  return `\u2068${name.replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "")}\u2069`;
}

/**
 * How the rotator does.
 *
 * @param {Pick<import("./types.js").Status, "lag_ms" | "config"> & {ticks?: number}} status without
 *   ticks: of a shard
 * @returns {{level: "ok" | "high" | "over", words: string}}
 */
export function rotator({ lag_ms, config, ticks }) {
  if (lag_ms > Math.max(config.tick_ms, LEAST_LAG_MS)) return { level: "over", words: "Away" };
  if (lag_ms > Math.min(1000, config.tick_ms)) return { level: "high", words: "Late" };
  // Whether a rotator runs is not known before the first tick is due.
  if (ticks === 0) return { level: "ok", words: "No tick yet" };
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
