/**
 * Verdicts per second over time. Nacks have a separate chart: next to a thousand acks per second, ten
 * failures would be a line at zero. Lines also differ in their strokes, for readers who see no red or green.
 */

import { Plot } from "./plot.js";
import { rate } from "../core/format.js";
import { colour } from "../core/theme.js";

const PLOTS = [
  { label: "Tracked and acked per second", height: 132, lines: [
    { name: "tracked", label: "tracked", dash: "dotted", colour: () => colour("--muted") },
    { name: "acked", label: "acked", dash: "", colour: () => colour("--acked") }] },
  { label: "Nacked per second", height: 108, lines: [
    { name: "failed", label: "failed", dash: "", colour: () => colour("--over") },
    { name: "expired", label: "expired", dash: "dashed", colour: () => colour("--old") },
    { name: "overflow", label: "overflow", dash: "dotted", colour: () => colour("--muted") }] },
];

/** @param {import("../core/scope.js").Scope} scope */
export function ratePlots(scope) {
  return PLOTS.map(({ label, height, lines }) => new Plot({
    label, height, lines, scope, format: rate,
    describe: (values) => lines.map((line, at) => `${rate(values[at] ?? 0)} ${line.label} a second`).join(", "),
  }));
}

/**
 * @param {Plot[]} plots
 * @param {import("../data/history.js").History} history
 */
export function drawRates(plots, history) {
  const points = history.since(plots[0].seconds);
  const rates = points.map(({ at }) => at < 0 ? null : history.rates(at));
  plots.forEach((plot, which) => plot.set(points.map(({ t }) => t),
    PLOTS[which].lines.map(({ name }) => rates.map((each) => each ? each[name] : null))));
}
