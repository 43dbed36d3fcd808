/**
 * The times of trees from their first row to their ack. Redis counts them since the namespace was
 * created; the difference of two readings covers the trees that were acked in between.
 *
 * @typedef {object} Distribution
 * @property {number[]} counts trees by the binary digits of their milliseconds: 0, 1, 2 to 3, 4 to 7, ..
 * @property {number} total
 * @property {number | null} mean ms; null: unknown
 */

/** @typedef {{t: number, counts: number[], sum: number}} Reading */

/** Far enough apart to be few, and close enough that the beginning is covered. */
const APART_MS = 5000;
/** With the reading before them, fifteen minutes. */
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
    // The namespace was created again, or shards were removed with their counts.
    if (last && (t < last.t || last.counts.some((each, at) => each > (counts[at] || 0)))) this.readings = [];
    const kept = this.readings.at(-1);
    if (!kept || t - kept.t >= APART_MS) this.readings = [...this.readings, now].slice(-MOST);
    this.last = now;
  }

  /** @returns {Distribution | null} of all trees that were ever acked; null: no reading */
  get ever() {
    return this.last && made(this.last.counts, this.last.sum);
  }

  /**
   * Return the distribution of the trees acked in the last seconds, as far as there are readings.
   *
   * @param {number} seconds
   * @returns {(Distribution & {ms: number}) | null} `ms`: the time that it covers; null: there is only one reading
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
 * Return the distribution of received ages, for a service that does not report Redis's counts.
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

/** Upper bound of the times in a count, in ms, exclusive. @param {number} at */
export function upper(at) {
  return 2 ** at;
}

/** Lower bound of the times in a count, in ms. @param {number} at */
export function lower(at) {
  return at ? 2 ** (at - 1) : 0;
}

/**
 * Return the time that a share of the trees took at most, in ms. Times are assumed to be spread evenly
 * in each count, as Prometheus does: the error is at most a factor of two, and usually smaller.
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
