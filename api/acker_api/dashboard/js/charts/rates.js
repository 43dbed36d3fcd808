/** Verdicts per second over time. */

import { Plot } from "./plot.js";
import { rate } from "../core/format.js";
import { colour } from "../core/theme.js";

const LINES = [
  { name: "tracked", label: "tracked", colour: () => colour("--muted") },
  { name: "acked", label: "acked", colour: () => colour("--ok") },
  { name: "failed", label: "failed", colour: () => colour("--over") },
  { name: "expired", label: "expired", colour: () => colour("--high") },
];

/** @param {import("../core/scope.js").Scope} scope */
export function ratesPlot(scope) {
  return new Plot({
    label: "Verdicts per second", lines: LINES, scope, format: rate,
    describe: (values) => LINES.map(
      ({ label }, at) => `${rate(values[at] ?? 0)} ${label} a second`).join(", "),
  });
}

/**
 * @param {Plot} plot
 * @param {import("../data/history.js").History} history
 */
export function drawRates(plot, history) {
  const points = history.since(plot.seconds);
  const rates = points.map(({ at }) => at < 0 ? null : history.rates(at));
  plot.set(points.map(({ t }) => t),
    LINES.map(({ name }) => rates.map((each) => each ? each[name] : null)));
}
