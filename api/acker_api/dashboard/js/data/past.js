/** The history that the rotators keep in Redis: buckets of minutes or hours, from before the page was opened. */

import { address, get, inNamespace } from "../core/api.js";
import { Signal } from "../core/signal.js";
import { apart, COUNTERS } from "./history.js";

/** The ranges of the charts: their text, length, and the range of REST; `live`: with every second of this page. */
export const RANGES = [
  { text: "2 min", seconds: 120, name: "", live: true },
  { text: "15 min", seconds: 900, name: "15m", live: true },
  { text: "1 h", seconds: 3600, name: "1h", live: true },
  { text: "24 h", seconds: 86_400, name: "24h", live: false },
  { text: "30 d", seconds: 2_592_000, name: "30d", live: false },
];
const OFTEN_MS = 60_000;
const RARELY_MS = 300_000;
/** Pause after a failed request. */
const AGAIN_MS = 10_000;
/** The first live sample may come so long after the last bucket. */
const JOINT_MS = 130_000;
/** A sample so near to the end of a bucket does not replace it. */
const END_MS = 5000;

/**
 * @typedef {object} Bucket
 * @property {number} from_ms
 * @property {number} to_ms
 * @property {number} open
 * @property {number} pending
 * @property {number} waiting
 * @property {number} [window] of all sources together
 * @property {number} [in_flight]
 * @property {number} [held] records that wait in sources
 * @property {number} [down] edges on which a source got no answer
 * @property {number} [useless] trees that got rows after they had expired
 * @property {number} ticks
 * @property {boolean} gap
 * @property {string[]} marks
 * @property {Record<string, [number, number]>} changes settings, before and after
 *
 * @typedef {object} Moment a place on the time axis
 * @property {number} t ms
 * @property {Bucket | null} [bucket]
 * @property {import("./history.js").Sample | null} [sample]
 * @property {number} [at] index of the sample
 *
 * @typedef {object} Happening
 * @property {number} t ms
 * @property {string} text "" for a tick
 *
 * @typedef {{from: number, to: number}} Band an outage, ms
 */

export class Past {
  /**
   * @param {string} namespace
   * @param {import("../core/scope.js").Scope} scope
   */
  constructor(namespace, scope) {
    this.namespace = namespace;
    this.range = RANGES[1];
    /** @type {Signal<Bucket[]>} */
    this.buckets = new Signal(/** @type {Bucket[]} */ ([]));
    /** Why there is no history; null while there is. @type {Signal<any>} */
    this.error = new Signal(/** @type {any} */ (null));
    this.round = 0;
    this.scope = scope;
    scope.repeat(() => this.#load());
  }

  /** @param {typeof RANGES[number]} range */
  choose(range) {
    this.range = range;
    this.buckets.set([]);
    void this.#load();
  }

  /** The address of the whole range as CSV. */
  get csv() {
    return `${address(inNamespace(this.namespace, "history"))}?range=${this.range.name || "15m"}&format=csv`;
  }

  async #load() {
    const mine = (this.round += 1);
    const { name, live } = this.range;
    if (!name || document.hidden) return OFTEN_MS;
    try {
      const found = await get(inNamespace(this.namespace, "history"), { query: { range: name }, signal: this.scope.signal });
      if (mine !== this.round || this.scope.over) return OFTEN_MS;
      this.error.set(null);
      this.buckets.tell(found.buckets);
    } catch (error) {
      if (this.scope.over || mine !== this.round) return OFTEN_MS;
      this.error.tell(error);
      return AGAIN_MS;
    }
    return live ? OFTEN_MS : RARELY_MS;
  }
}

/**
 * Return the moments of a chart: buckets, and samples of this page in their place where there are some.
 * A moment without both is a gap.
 *
 * @param {import("./history.js").History} history
 * @param {Past} past
 * @returns {Moment[]}
 */
export function moments(history, { range, buckets: { value: buckets } }) {
  const last = Math.max(history.samples.at(-1)?.t ?? 0, buckets.at(-1)?.to_ms ?? 0);
  const since = last - range.seconds * 1000;
  /** @type {Moment[]} */
  const live = range.live || !buckets.length ? history.samples.map((sample, at) => ({ t: sample.t, sample, at })).filter(({ t }) => t >= since) : [];
  const seen = (/** @type {Bucket} */ { from_ms, to_ms }) => live.some(({ t }) => t > from_ms && t < to_ms - END_MS);
  const earlier = range.name ? buckets.filter((each) => each.to_ms >= since && !seen(each)) : [];
  const all = [...live, ...earlier.map((bucket) => ({ t: bucket.to_ms, bucket }))].sort((one, other) => one.t - other.t);
  /** @type {Moment[]} */
  const found = [];
  for (const each of all) {
    const before = found.at(-1);
    const pause = before ? each.t - before.t : 0;
    const gap = each.bucket ? each.bucket.gap : each.sample?.after
      || (before?.sample && each.sample ? apart(before.sample, each.sample) : pause > JOINT_MS);
    if (before && gap) found.push({ t: before.t + 1 });
    // After a gap its own bucket is left out: the counts are right, but not when it happened.
    if (each.bucket?.gap) found.push({ t: each.t });
    else found.push(each);
  }
  return found;
}

/**
 * Return counts per second at a moment; null where they are unknown.
 *
 * @param {Moment} moment
 * @param {import("./history.js").History} history
 * @returns {Record<string, number> | null}
 */
export function ratesAt({ bucket, sample, at }, history) {
  if (sample) return history.rates(at);
  if (!bucket) return null;
  const seconds = (bucket.to_ms - bucket.from_ms) / 1000;
  return seconds > 0 ? Object.fromEntries([...COUNTERS, "useless"].map((name) => [name, (bucket[name] || 0) / seconds])) : null;
}

/**
 * Return the times in which a source got no answer on some edge.
 *
 * @param {Moment[]} moments
 * @returns {Band[]}
 */
export function outages(moments) {
  /** @type {Band[]} */
  const found = [];
  let before = 0;
  for (const { t, bucket, sample } of moments) {
    const last = found.at(-1);
    if (bucket?.down || sample?.sources?.down) {
      // The figures of a bucket are those at its end.
      const from = bucket ? Math.max(before, bucket.from_ms) : before || t;
      if (last && last.to >= from) last.to = t;
      else found.push({ from, to: t });
    }
    before = t;
  }
  return found;
}

/**
 * Return what happened in a range: ticks of the last hour, restarts, counters that went back, changed settings.
 *
 * @param {Past} past
 * @param {(name: string, value: number) => string} valueOf text of a setting
 * @returns {Happening[]}
 */
export function happenings({ range, buckets: { value: buckets } }, valueOf) {
  const words = { restart: () => "Redis started again", reset: () => "Counters were set back",
    settings: (/** @type {Bucket} */ { changes }) => Object.entries(changes).map(([name, [before, after]]) =>
      `${name}: ${valueOf(name, before)} became ${valueOf(name, after)}`).join(", ") || "Settings were changed" };
  return buckets.flatMap((bucket) => [
    ...bucket.marks.filter((mark) => mark in words).map((mark) => ({ t: bucket.to_ms, text: words[mark](bucket) })),
    ...(bucket.ticks && range.seconds <= 3600 && !bucket.gap ? [{ t: bucket.to_ms, text: "" }] : [])]);
}
