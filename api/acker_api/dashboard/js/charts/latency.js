/** A distribution over powers of two: bars, and marks at p50, p95 and p99. */

import { h, put, say } from "../core/dom.js";
import { about, count, percent } from "../core/format.js";
import { lower, quantile, upper } from "../data/latency.js";

const PARTS = /** @type {[string, number][]} */ ([["p50", 0.5], ["p95", 0.95], ["p99", 0.99]]);
const LEAST_BARS = 9;
const LABELS = 6;

export class Latency {
  constructor() {
    this.bars = h("ol", { class: "bars", role: "list", "aria-label": "Trees by the time they took" });
    this.marks = PARTS.map(([name]) => h("span", { class: `mark-at ${name}` }, h("span", {}, name)));
    this.axis = h("div", { class: "bars-axis number", "aria-hidden": "true" });
    this.figures = [...PARTS.map(([name]) => name), "mean"].map(() => h("dd", { class: "number" }, "–"));
    this.root = h("div", {},
      h("dl", { class: "quantiles" }, [...PARTS.map(([name]) => name), "mean"].map((name, at) =>
        h("div", {}, h("dt", {}, name), this.figures[at]))),
      h("div", { class: "bars-box" }, this.bars, h("div", { "aria-hidden": "true" }, this.marks)), this.axis);
    this.drawn = "";
  }

  /** @param {import("../data/latency.js").Distribution} found of one tree at least */
  set(found) {
    const drawn = JSON.stringify(found.counts);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const { counts, total } = found;
    const first = counts.findIndex(Boolean);
    const last = counts.findLastIndex(Boolean);
    // A bar is drawn with its neighbours: alone it would not show the scale.
    const low = Math.max(0, Math.min(first - 1, last + 2 - LEAST_BARS));
    const size = Math.max(LEAST_BARS, last + 2 - low);
    const most = Math.max(...counts);
    put(this.bars, Array.from({ length: size }, (_, step) => {
      const at = low + step;
      const trees = counts[at] || 0;
      const words = `${lower(at) ? about(lower(at)) : "0"} to ${about(upper(at))}: ${count(trees)}, ${percent(trees / total)}`;
      const bar = h("span", { class: "bar" });
      bar.style.height = `${100 * trees / most}%`;
      return h("li", { title: words }, h("span", { class: "only-read" }, words), bar);
    }));
    // A label is under the border that it names.
    const every = Math.ceil((size - 1) / LABELS);
    put(this.axis, Array.from({ length: size - 1 }, (_, step) => step + 1).filter((step) => step % every === 0).map((step) => {
      const label = h("span", {}, about(upper(low + step - 1)));
      label.style.left = `${100 * step / size}%`;
      return label;
    }));
    PARTS.forEach(([, part], at) => {
      const ms = quantile(found, part);
      say(this.figures[at], `≈ ${about(ms)}`);
      const left = Math.min(100, Math.max(0, 100 * (place(ms) - low) / size));
      this.marks[at].style.left = `${left}%`;
      this.marks[at].classList.toggle("leftward", left > 80);
    });
    say(this.figures[PARTS.length], found.mean === null ? "–" : about(found.mean));
  }
}

/** The position of a time among the bars. */
function place(ms) {
  const at = ms < 1 ? 0 : Math.floor(Math.log2(ms)) + 1;
  return at + (ms - lower(at)) / (upper(at) - lower(at));
}
