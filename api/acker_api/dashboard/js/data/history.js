/**
 * The history of a namespace, second by second, while the page is open. It is stored in the tab, so
 * that a reload does not empty the charts. Rates are computed from two readings of the counters.
 */

import { Latencies } from "./latency.js";

/** @typedef {import("./types.js").Status} Status */

const MOST = 960;
const APART_MS = 700;
/** An answer that was overtaken is older than the one before it by less than this. */
export const OVERTAKEN_MS = 10_000;
/** A longer pause between readings is a gap: the values in between are unknown. A loaded service is slow, too. */
const GAP_MS = 12_000;
/** Time over which a rate is computed, in ms. */
const WINDOW_MS = 4000;
/** Counters of trees that have a verdict. */
export const ENDED = ["acked", "failed", "expired", "overflow", "conflict"];
export const COUNTERS = ["tracked", ...ENDED];
/** Counters of trees that got rows after their end; those of failed trees are no useless work. */
const LATE = ["orphaned", "after_failure"];
const FIGURES = /** @type {const} */ (["window", "in_flight", "held", "down"]);

/** @typedef {{t: number, first: boolean}} Since `first`: the condition held already at the first reading */

/**
 * @typedef {object} Sample
 * @property {number} t Redis's clock, ms
 * @property {number[]} buckets pending per bucket, the newest first
 * @property {Record<string, number>} counters
 * @property {Record<string, number>} [sources] what sources have reported, in all
 * @property {boolean} [after] an outage came before it: no line and no rate bridges it
 */

export class History {
  /** @param {string} namespace */
  constructor(namespace) {
    this.key = `acker.history.${namespace}`;
    const found = restore(this.key);
    /** @type {Sample[]} */
    this.samples = found.samples;
    this.latencies = new Latencies(found.latencies);
    this.broken = false;
    /** The start of each problem, by key. @type {Map<string, Since>} */
    this.wrong = new Map(found.wrong);
  }

  /** @param {Status} status */
  add(status) {
    const t = status.shards[0].now_ms;
    const last = this.samples.at(-1);
    // Two readings may overtake each other: a slightly older one is ignored.
    if (last && t < last.t + APART_MS && t > last.t - OVERTAKEN_MS) return;
    if (last && (t < last.t || started(last.counters, status.counters))) {
      this.samples = []; // the clock was set back, or the namespace was created again
      this.wrong.clear();
    }
    const counters = Object.fromEntries([...COUNTERS, ...LATE].map((name) => [name, status.counters[name] || 0]));
    this.samples.push({ t, buckets: [...status.pending_by_bucket], counters, sources: sum(status.reports), ...(this.broken ? { after: true } : {}) });
    this.broken = false;
    if (this.samples.length > MOST) this.samples.splice(0, this.samples.length - MOST);
    if (status.latency) this.latencies.add(t, status.latency);
  }

  /** Note that readings have failed: the next one begins a new line. */
  interrupt() {
    this.broken = true;
  }

  /**
   * Note the present problems: their start is stored.
   *
   * @param {string[]} keys
   * @param {number} t Redis's clock, ms
   */
  note(keys, t) {
    for (const key of this.wrong.keys()) if (!keys.includes(key)) this.wrong.delete(key);
    const before = this.samples.at(-2);
    const first = !before || t - before.t > GAP_MS; // the start was not observed
    for (const key of keys) if (!this.wrong.has(key)) this.wrong.set(key, { t, first });
  }

  /**
   * Return the verdicts per second by counter, at a sample; null without an earlier sample.
   *
   * @param {number} [at]
   * @returns {Record<string, number> | null}
   */
  rates(at = this.samples.length - 1) {
    const now = this.samples[at];
    if (!now) return null;
    let from = at;
    while (from > 0 && now.t - this.samples[from].t < WINDOW_MS && !apart(this.samples[from - 1], this.samples[from])) from -= 1;
    const before = this.samples[from];
    const seconds = (now.t - before.t) / 1000;
    if (seconds <= 0) return null;
    const grown = (/** @type {string} */ name) => ((now.counters[name] || 0) - (before.counters[name] || 0)) / seconds;
    return { ...Object.fromEntries(COUNTERS.map((name) => [name, grown(name)])),
      useless: Math.max(0, grown("orphaned") - grown("after_failure")) };
  }

  save() {
    try {
      const { samples, latencies: { readings }, wrong } = this;
      sessionStorage.setItem(this.key, JSON.stringify({ samples, latencies: readings, wrong: [...wrong] }));
    } catch {
      // Storage is full or off: the charts start empty after a reload.
    }
  }
}

/**
 * Return whether the values between two samples are unknown.
 *
 * @param {Sample} before
 * @param {Sample} now
 */
export function apart(before, now) {
  return Boolean(now.after) || now.t - before.t > GAP_MS;
}

/** @param {import("./types.js").SourceReport[]} [reports] */
function sum(reports = []) {
  const each = reports.map(({ window: size, in_flight, waiting, down_ms }) => (
    { window: size || 0, in_flight, held: waiting, down: down_ms === null ? 0 : 1 }));
  return Object.fromEntries(FIGURES.map((name) => [name, each.reduce((all, one) => all + one[name], 0)]));
}

function started(before, now) {
  return COUNTERS.some((name) => (now[name] || 0) < before[name]);
}

/** @returns {{samples: Sample[], latencies: import("./latency.js").Reading[], wrong: [string, Since][]}} */
function restore(key) {
  try {
    const { samples, latencies, wrong } = JSON.parse(sessionStorage.getItem(key) || "{}");
    if (samples.every((each) => each.t && each.buckets && each.counters)
      && latencies.every((each) => each.t && each.counts) && wrong.every(([, since]) => since.t)) {
      return { samples, latencies, wrong };
    }
  } catch {
    // There is none, or one of another version of this page.
  }
  return { samples: [], latencies: [], wrong: [] };
}
