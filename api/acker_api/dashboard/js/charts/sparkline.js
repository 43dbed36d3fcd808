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

  /** @param {(number | null)[]} values null is a gap, which no line bridges */
  set(values) {
    const most = Math.max(1, ...values.map((value) => value ?? 0));
    const step = WIDTH / Math.max(1, values.length - 1);
    /** @type {[number, number][][]} */
    const parts = [[]];
    values.forEach((value, at) => {
      if (value === null) parts.push([]);
      else parts[parts.length - 1].push([at * step, HEIGHT - 2 - value / most * (HEIGHT - 5)]);
    });
    if (values.length === 1 && parts[0].length) parts[0].push([WIDTH, parts[0][0][1]]);
    const drawn = parts.filter((part) => part.length).map((part) => ({
      path: `M ${part.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join(" L ")}`,
      from: part[0][0].toFixed(1), to: part[part.length - 1][0].toFixed(1),
    }));
    this.line.setAttribute("d", drawn.map(({ path }) => path).join(" "));
    this.area.setAttribute("d", drawn.map(({ path, from, to }) => `${path} L ${to} ${HEIGHT} L ${from} ${HEIGHT} Z`).join(" "));
  }
}
