/** The windows of all sources over time, and the work for trees that have expired. */

import { Plot } from "./plot.js";
import { compact, count, plural, rate } from "../core/format.js";
import { colour } from "../core/theme.js";
import { ratesAt } from "../data/past.js";

const RECORDS = [
  { name: "window", label: "window", dash: "dotted", colour: () => colour("--muted") },
  { name: "in_flight", label: "in flight", dash: "", colour: () => colour("--acked") },
  { name: "held", label: "waiting", dash: "dashed", colour: () => colour("--old") },
];
const WORK = [
  { name: "useless", label: "useless", dash: "", colour: () => colour("--over") },
  { name: "expired", label: "expired", dash: "dashed", colour: () => colour("--old") },
];

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {{events: () => import("../data/past.js").Happening[], bands: () => import("../data/past.js").Band[]}} marks
 */
export function windowPlots(scope, marks) {
  return [
    new Plot({ label: "Records of sources", height: 152, lines: RECORDS, scope, ...marks, format: compact,
      describe: (values) => `${RECORDS.map(({ label }, at) => `${count(values[at] ?? 0)} ${label}`).join(", ")}${outages(marks.bands())}` }),
    new Plot({ label: "Useless work per second", height: 96, lines: WORK, scope, ...marks, format: rate,
      describe: (values) => WORK.map(({ label }, at) => `${rate(values[at] ?? 0)} ${label} a second`).join(", ") }),
  ];
}

/** @param {import("../data/past.js").Band[]} bands */
function outages(bands) {
  return bands.length ? `; ${plural(bands.length, "outage")} in this time` : "";
}

/**
 * @param {Plot[]} plots
 * @param {import("../data/past.js").Moment[]} moments
 * @param {import("../data/history.js").History} history
 */
export function drawWindows([records, work], moments, history) {
  const times = moments.map(({ t }) => t);
  const figures = moments.map(({ bucket, sample }) => bucket || sample?.sources || null);
  records.set(times, RECORDS.map(({ name }) => figures.map((each) => each?.[name] ?? null)));
  const rates = moments.map((each) => ratesAt(each, history));
  work.set(times, WORK.map(({ name }) => rates.map((each) => each?.[name] ?? null)));
}
