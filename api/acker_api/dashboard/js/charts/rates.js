/**
 * Verdicts per second over time. Nacks have a separate chart: next to a thousand acks per second, ten
 * failures would be a line at zero. Lines also differ in their strokes, for readers who see no red or green.
 */

import { Plot } from "./plot.js";
import { rate } from "../core/format.js";
import { colour } from "../core/theme.js";
import { ratesAt } from "../data/past.js";

const PLOTS = [
  { label: "Tracked and acked per second", height: 132, lines: [
    { name: "tracked", label: "tracked", dash: "dotted", colour: () => colour("--muted") },
    { name: "acked", label: "acked", dash: "", colour: () => colour("--acked") }] },
  { label: "Nacked per second", height: 108, lines: [
    { name: "failed", label: "failed", dash: "", colour: () => colour("--over") },
    { name: "expired", label: "expired", dash: "dashed", colour: () => colour("--old") },
    { name: "overflow", label: "overflow", dash: "dotted", colour: () => colour("--muted") }] },
];

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {{events: () => import("../data/past.js").Happening[], bands: () => import("../data/past.js").Band[]}} marks
 */
export function ratePlots(scope, marks) {
  return PLOTS.map(({ label, height, lines }) => new Plot({
    label, height, lines, scope, ...marks, format: rate,
    describe: (values) => lines.map((line, at) => `${rate(values[at] ?? 0)} ${line.label} a second`).join(", "),
  }));
}

/**
 * @param {Plot[]} plots
 * @param {import("../data/past.js").Moment[]} moments
 * @param {import("../data/history.js").History} history
 */
export function drawRates(plots, moments, history) {
  const rates = moments.map((each) => ratesAt(each, history));
  plots.forEach((plot, which) => plot.set(moments.map(({ t }) => t),
    PLOTS[which].lines.map(({ name }) => rates.map((each) => each ? each[name] : null))));
}
