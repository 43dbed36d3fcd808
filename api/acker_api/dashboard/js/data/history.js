/**
 * How a namespace stood, second by second, as long as the page was open. It is kept in the tab, so
 * that a reload does not empty the charts. Rates are computed from two readings of the counters.
 */

/** @typedef {import("./types.js").Status} Status */

const MOST = 960;
const APART_MS = 700;
const GAP_MS = 5000;
/** Milliseconds over which a rate is computed. */
const WINDOW_MS = 4000;
const COUNTERS = ["tracked", "acked", "failed", "expired", "overflow", "conflict"];

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
    /** @type {Sample[]} */
    this.samples = restore(this.key);
  }

  /** @param {Status} status */
  add(status) {
    const t = status.shards[0].now_ms;
    const last = this.samples.at(-1);
    if (last && (t < last.t || started(last.counters, status.counters))) {
      this.samples = []; // the clock was set back, or it is another namespace by this name
    } else if (last && t - last.t < APART_MS) {
      return;
    }
    const counters = Object.fromEntries(COUNTERS.map((name) => [name, status.counters[name] || 0]));
    this.samples.push({ t, buckets: [...status.pending_by_bucket], counters });
    if (this.samples.length > MOST) this.samples.splice(0, this.samples.length - MOST);
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
      sessionStorage.setItem(this.key, JSON.stringify(this.samples));
    } catch {
      // Full, or off: the charts begin anew after a reload.
    }
  }
}

function started(before, now) {
  return COUNTERS.some((name) => (now[name] || 0) < before[name]);
}

function restore(key) {
  try {
    const found = JSON.parse(sessionStorage.getItem(key) || "[]");
    return Array.isArray(found) && found.every((each) => each.t && each.buckets && each.counters)
      ? found : [];
  } catch {
    return [];
  }
}
