/**
 * How long trees took from their first row to their ack. Redis counts them since the namespace was
 * created; of two readings the difference says how long those took that were acked in between.
 *
 * @typedef {object} Distribution
 * @property {number[]} counts trees by the binary digits of their milliseconds: 0, 1, 2 to 3, 4 to 7, ..
 * @property {number} total
 * @property {number | null} mean ms; null: it is not known
 */

/** @typedef {{t: number, counts: number[], sum: number}} Reading */

/** Apart enough to be few, and close enough that little is missed at the beginning. */
const APART_MS = 5000;
/** With the one before them: fifteen minutes. */
const MOST = 181;

export class Latencies {
  /** @param {Reading[]} [readings] */
  constructor(readings = []) {
    this.readings = readings;
    /** @type {Reading | null} */
    this.last = readings.at(-1) || null;
  }

  /**
   * @param {number} t Redis's clock, ms
   * @param {{counts: number[], sum_ms: number}} told
   */
  add(t, { counts, sum_ms: sum }) {
    const now = { t, counts, sum };
    const last = this.last;
    // Of another namespace by this name, or shards have gone with what they had counted.
    if (last && (t < last.t || last.counts.some((each, at) => each > (counts[at] || 0)))) this.readings = [];
    const kept = this.readings.at(-1);
    if (!kept || t - kept.t >= APART_MS) this.readings = [...this.readings, now].slice(-MOST);
    this.last = now;
  }

  /** @returns {Distribution | null} of all that were ever acked; null: nothing was read */
  get ever() {
    return this.last && made(this.last.counts, this.last.sum);
  }

  /**
   * Of those that were acked in the last so many seconds, as far as it was looked at.
   *
   * @param {number} seconds
   * @returns {(Distribution & {ms: number}) | null} `ms`: over how long that is; null: there is but one reading
   */
  over(seconds) {
    const last = this.last;
    const first = last && this.readings.find((each) => each.t >= last.t - seconds * 1000);
    if (!last || !first || first.t >= last.t) return null;
    const counts = last.counts.map((each, at) => each - (first.counts[at] || 0));
    return { ...made(counts, last.sum - first.sum), ms: last.t - first.t };
  }
}

/**
 * Of ages that were heard of, where Redis's counts are not told.
 *
 * @param {number[]} ages ms
 * @returns {Distribution}
 */
export function ofAges(ages) {
  /** @type {number[]} */
  const counts = [];
  for (const age of ages) {
    const at = age < 1 ? 0 : Math.floor(Math.log2(age)) + 1;
    while (counts.length <= at) counts.push(0);
    counts[at] += 1;
  }
  return made(counts, ages.reduce((sum, each) => sum + each, 0));
}

/** What the trees of a count took less than, ms. @param {number} at */
export function upper(at) {
  return 2 ** at;
}

/** And what they took at least. @param {number} at */
export function lower(at) {
  return at ? 2 ** (at - 1) : 0;
}

/**
 * What a share of the trees took at most, ms. Those of a count are taken to be spread evenly, as
 * Prometheus does it: right to a factor of two, and mostly better.
 *
 * @param {Distribution} distribution of one tree at least
 * @param {number} part
 */
export function quantile({ counts, total }, part) {
  let below = 0;
  for (const [at, each] of counts.entries()) {
    if (each && below + each >= part * total) {
      return lower(at) + (upper(at) - lower(at)) * Math.max(0, part * total - below) / each;
    }
    below += each;
  }
  return NaN;
}

/** @returns {Distribution} */
function made(counts, sum) {
  const total = counts.reduce((all, each) => all + each, 0);
  return { counts, total, mean: total && sum >= 0 ? sum / total : null };
}
