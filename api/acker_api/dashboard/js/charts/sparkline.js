/** A small line of past values, without axes. */

import { s } from "../core/dom.js";

const WIDTH = 120;
const HEIGHT = 32;

export class Sparkline {
  constructor() {
    this.area = s("path", { class: "spark-area" });
    this.line = s("path", { class: "spark-line" });
    this.root = s("svg", {
      class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true",
    }, this.area, this.line);
  }

  /** @param {number[]} values */
  set(values) {
    const most = Math.max(1, ...values);
    const step = WIDTH / Math.max(1, values.length - 1);
    const points = (values.length === 1 ? [values[0], values[0]] : values).map((value, at) =>
      `${(values.length === 1 ? at * WIDTH : at * step).toFixed(1)} ${(HEIGHT - 2 - value / most * (HEIGHT - 5)).toFixed(1)}`);
    const path = points.length ? `M ${points.join(" L ")}` : "";
    this.line.setAttribute("d", path);
    this.area.setAttribute("d", path ? `${path} L ${WIDTH} ${HEIGHT} L 0 ${HEIGHT} Z` : "");
  }
}
