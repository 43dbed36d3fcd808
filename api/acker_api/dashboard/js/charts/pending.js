/**
 * Pending trees over time, stacked by bucket: the oldest bucket is at the bottom. History does not know the
 * buckets: the time before the page was opened is one layer.
 */

import { Plot } from "./plot.js";
import { compact, count } from "../core/format.js";
import { colour } from "../core/theme.js";

/**
 * @param {number} buckets
 * @param {import("../core/scope.js").Scope} scope
 * @param {() => {value: number, label: string}[]} marks
 * @param {{events: () => import("../data/past.js").Happening[], bands: () => import("../data/past.js").Band[]}} happened
 */
export function pendingPlot(buckets, scope, marks, happened) {
  // Drawn from the highest sum down; each layer covers the part of the layer before that is not its own.
  const ages = Array.from({ length: buckets }, (_, at) => at);
  const lines = [{ label: "all buckets", filled: true, colour: () => colour("--line-strong") }, ...ages.map((bucket) => ({
    label: bucketName(bucket, buckets), filled: true, colour: () => bucketColour(bucket, buckets),
  }))];
  return new Plot({
    label: "Pending trees by bucket", lines, scope, marks, ...happened, format: compact,
    shown: ([all, ...sums]) => [all, ...sums.map((sum, at) => sum === null ? null : sum - (sums[at + 1] ?? 0))],
    describe: ([all, ...values]) => {
      const parts = values.map((value, at) => `${count(value ?? 0)} ${bucketName(at, buckets)}`);
      return all === null ? parts.join(", ") : `${count(all)} in all buckets`;
    },
  });
}

/**
 * @param {Plot} plot
 * @param {import("../data/past.js").Moment[]} moments
 */
export function drawPending(plot, moments) {
  const buckets = plot.lines.length - 1;
  const lines = Array.from({ length: buckets }, (_, bucket) => moments.map(({ sample }) => sample
    ? sample.buckets.slice(bucket).reduce((sum, each) => sum + each, 0) : null));
  plot.set(moments.map(({ t }) => t), [moments.map(({ bucket }) => bucket ? bucket.pending : null), ...lines]);
}

/** @param {number} bucket 0 is the newest @param {number} buckets */
export function bucketName(bucket, buckets) {
  if (bucket === 0) return "newest";
  return bucket === buckets - 1 ? "oldest" : `bucket ${bucket}`;
}

/** Blues, darker for older buckets, and orange for the one that expires next: distinct without red, too. */
export function bucketColour(bucket, buckets) {
  if (buckets > 1 && bucket === buckets - 1) return colour("--old");
  const part = buckets < 3 ? 0 : bucket / (buckets - 2);
  const [low, high] = [channels("--new"), channels("--mid")];
  return `rgb(${low.map((value, at) => Math.round(value + (high[at] - value) * part)).join(", ")})`;
}

/** The canvas of an older browser does not support color-mix(). The themes define these as #rrggbb. */
function channels(name) {
  const hex = colour(name);
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
