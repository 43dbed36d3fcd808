/**
 * How a namespace stood, second by second, as long as the page was open. It is kept in the tab, so
 * that a reload does not empty the charts. Rates are computed from two readings of the counters.
 */

import { Latencies } from "./latency.js";

/** @typedef {import("./types.js").Status} Status */

const MOST = 960;
const APART_MS = 700;
/** An answer that is older than another comes later by less than this. */
export const OVERTAKEN_MS = 10_000;
/** Nothing was read for so long: nobody knows what was in between. A loaded service is slow, too. */
const GAP_MS = 12_000;
/** Milliseconds over which a rate is computed. */
const WINDOW_MS = 4000;
const COUNTERS = ["tracked", "acked", "failed", "expired", "overflow", "conflict"];

/** @typedef {{t: number, first: boolean}} Since `first`: it was so when the page began to look */

/**
 * @typedef {object} Sample
 * @property {number} t Redis's clock, ms
 * @property {number[]} buckets pending per bucket, the newest first
 * @property {Record<string, number>} counters
 */

export class History {
  /** @param {string} namespace */
  constructor(namespace) {
    this.key = `acker.history.${namespace}`;
    const found = restore(this.key);
    /** @type {Sample[]} */
    this.samples = found.samples;
    this.latencies = new Latencies(found.latencies);
    /** Since when something is wrong, by what it is. @type {Map<string, Since>} */
    this.wrong = new Map(found.wrong);
  }

  /** @param {Status} status */
  add(status) {
    const t = status.shards[0].now_ms;
    const last = this.samples.at(-1);
    // Two readings may overtake each other: what is a little older is no news.
    if (last && t < last.t + APART_MS && t > last.t - OVERTAKEN_MS) return;
    if (last && (t < last.t || started(last.counters, status.counters))) {
      this.samples = []; // the clock was set back, or it is another namespace by this name
      this.wrong.clear();
    }
    const counters = Object.fromEntries(COUNTERS.map((name) => [name, status.counters[name] || 0]));
    this.samples.push({ t, buckets: [...status.pending_by_bucket], counters });
    if (this.samples.length > MOST) this.samples.splice(0, this.samples.length - MOST);
    if (status.latency) this.latencies.add(t, status.latency);
  }

  /**
   * What is wrong as of now: remembered is since when.
   *
   * @param {string[]} keys
   * @param {number} t Redis's clock, ms
   */
  note(keys, t) {
    for (const key of this.wrong.keys()) if (!keys.includes(key)) this.wrong.delete(key);
    const before = this.samples.at(-2);
    const first = !before || t - before.t > GAP_MS; // nobody looked when it began
    for (const key of keys) if (!this.wrong.has(key)) this.wrong.set(key, { t, first });
  }

  /**
   * The samples of so many seconds, with one without values wherever none came for a while.
   *
   * @param {number} seconds
   * @returns {{t: number, sample: Sample | null, at: number}[]} `at`: where it is in `samples`
   */
  since(seconds) {
    const last = this.samples.at(-1);
    if (!last) return [];
    /** @type {{t: number, sample: Sample | null, at: number}[]} */
    const found = [];
    this.samples.forEach((sample, at) => {
      if (sample.t < last.t - seconds * 1000) return;
      const before = found.at(-1);
      if (before && sample.t - before.t > GAP_MS) {
        found.push({ t: before.t + 1, sample: null, at: -1 });
      }
      found.push({ t: sample.t, sample, at });
    });
    return found;
  }

  /**
   * Verdicts per second by counter, as of a sample; null if there is nothing to compare it with.
   *
   * @param {number} [at]
   * @returns {Record<string, number> | null}
   */
  rates(at = this.samples.length - 1) {
    const now = this.samples[at];
    if (!now) return null;
    let from = at;
    while (from > 0 && now.t - this.samples[from].t < WINDOW_MS
      && this.samples[from].t - this.samples[from - 1].t <= GAP_MS) from -= 1;
    const before = this.samples[from];
    const seconds = (now.t - before.t) / 1000;
    if (seconds <= 0) return null;
    return Object.fromEntries(COUNTERS.map(
      (name) => [name, (now.counters[name] - before.counters[name]) / seconds]));
  }

  save() {
    try {
      const { samples, latencies: { readings }, wrong } = this;
      sessionStorage.setItem(this.key, JSON.stringify({ samples, latencies: readings, wrong: [...wrong] }));
    } catch {
      // Full, or off: the charts begin anew after a reload.
    }
  }
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
    // Nothing, or of another version of this page.
  }
  return { samples: [], latencies: [], wrong: [] };
}
