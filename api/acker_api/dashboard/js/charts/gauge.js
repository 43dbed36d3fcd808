/** A gauge of a namespace: an arc with the high-water mark and twice the mark. */

import { h, s, say } from "../core/dom.js";
import { compact, percent } from "../core/format.js";

const MOST = 2.5;
const SIZE = 100;
const RADIUS = 80;
const SWEEP = 220;

export class Gauge {
  constructor() {
    const length = this.length = RADIUS * SWEEP * Math.PI / 180;
    this.arc = s("path", { class: "gauge-value", d: arc(0, MOST), "stroke-dasharray": `0 ${length * 2}` });
    this.value = h("span", { class: "gauge-figure number" }, "–");
    this.words = h("span", { class: "gauge-words" }, "of the mark");
    this.meter = h("div", {
      class: "gauge", role: "meter", "aria-label": "Fullest shard, in percent of the high-water mark",
      "aria-valuemin": "0", "aria-valuemax": "250", "aria-valuenow": "0",
    }, s("svg", { viewBox: "0 0 220 168", "aria-hidden": "true" },
      s("path", { class: "gauge-zone ok", d: arc(0, 0.985) }),
      s("path", { class: "gauge-zone high", d: arc(1.015, 1.985) }),
      s("path", { class: "gauge-zone over", d: arc(2.015, MOST) }),
      this.arc,
      label(1, "mark"), label(2, "2×")),
    h("div", { class: "gauge-text" }, this.value, this.words));
    this.root = this.meter;
  }

  /** @param {import("../data/types.js").Status} status */
  set({ high_water_ratio: ratio, high_water: level, config }) {
    const shown = Math.min(ratio, MOST) / MOST;
    this.arc.setAttribute("stroke-dasharray", `${shown * this.length} ${this.length * 2}`);
    this.arc.setAttribute("class", `gauge-value ${level}`);
    say(this.value, percent(ratio));
    say(this.words, `of ${compact(config.high_water)}`);
    this.meter.setAttribute("aria-valuenow", String(Math.round(Math.min(ratio, MOST) * 100)));
    this.meter.setAttribute("aria-valuetext", `${percent(ratio)} of the mark, ${level}`);
  }
}

function point(value, radius) {
  const angle = (180 + (SWEEP - 180) / 2 - (value / MOST) * SWEEP) * Math.PI / 180;
  return [SIZE + 10 + radius * Math.cos(angle), SIZE + 12 - radius * Math.sin(angle)];
}

function arc(from, to) {
  const [x1, y1] = point(from, RADIUS);
  const [x2, y2] = point(to, RADIUS);
  const large = (to - from) / MOST * SWEEP > 180 ? 1 : 0;
  return `M ${x1.toFixed(2)} ${y1.toFixed(2)} A ${RADIUS} ${RADIUS} 0 ${large} 1 ${x2.toFixed(2)} ${y2.toFixed(2)}`;
}

function label(value, text) {
  const [x, y] = point(value, RADIUS + 16);
  return s("text", { class: "gauge-label", x: x.toFixed(1), y: (y + 3).toFixed(1), "text-anchor": "middle" }, text);
}
