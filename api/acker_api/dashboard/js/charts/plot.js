/**
 * A chart over time by uPlot, with values in its legend, a sentence for screen readers, and a table
 * of the values.
 */

import { drawBands } from "./bands.js";
import { moment } from "../core/format.js";
import { h, put, say } from "../core/dom.js";
import { colour, theme } from "../core/theme.js";

const HEIGHT = 208;
/** Strokes of lines, as uPlot and as CSS take them. @type {Record<string, number[]>} */
const DASHES = { dashed: [7, 4], dotted: [2, 3] };
const LEAST_SECONDS = 20;
const TABLE_ROWS = 12;
const DESCRIBE_MS = 10_000;
const DAY_SECONDS = 86_400;
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {() => string} colour
 * @property {boolean} [filled]
 * @property {string} [dash] "dashed" or "dotted"
 */

export class Plot {
  /**
   * @param {object} options
   * @param {string} options.label its title
   * @param {Line[]} options.lines in drawing order
   * @param {(value: number) => string} options.format
   * @param {import("../core/scope.js").Scope} options.scope
   * @param {(values: (number | null)[]) => string} options.describe returns a sentence about the last values
   * @param {(values: (number | null)[]) => (number | null)[]} [options.shown] converts drawn values to
   *   displayed ones: stacked lines are drawn as sums
   * @param {number} [options.height]
   * @param {() => {value: number, label: string}[]} [options.marks] levels, drawn if they are in range
   * @param {() => import("../data/past.js").Band[]} [options.bands] outages, drawn under the lines
   * @param {() => import("../data/past.js").Happening[]} [options.events] moments, drawn as vertical lines; ticks at the bottom
   */
  constructor({ label, lines, format, scope, describe, shown = (values) => values, marks = () => [],
    events = () => [], bands = () => [], height = HEIGHT }) {
    this.lines = lines;
    this.format = format;
    this.describe = describe;
    this.shown = shown;
    this.marks = marks;
    this.events = events;
    this.bands = bands;
    this.height = height;
    this.seconds = 120;
    this.describedAt = 0;
    /** @type {any[]} */
    this.data = [[], ...lines.map(() => [])];
    this.canvas = h("div", { class: "plot", role: "img", "aria-label": `${label}: no values yet` });
    this.canvas.style.height = `${height}px`;
    this.label = label;
    this.values = lines.map(() => h("span", { class: "number" }, "–"));
    this.swatches = lines.map(() => h("i", { class: "swatch" }));
    this.when = h("span", { class: "legend-time number" });
    this.rows = h("tbody");
    this.details = h("details", { class: "values" }, h("summary", {}, "Values as a table"),
      h("div", { class: "table-box", role: "region", "aria-label": `${label}, values`, tabindex: "0" },
        h("table", {}, h("caption", { class: "only-read" }, label),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"),
            lines.map((line) => h("th", { scope: "col", class: "number" }, line.label)))),
          this.rows)));
    this.details.addEventListener("toggle", () => this.#table());
    const legend = lines.map((line, at) => h("li", {}, this.swatches[at], line.label, this.values[at]));
    this.root = h("div", { class: "chart" },
      h("ul", { class: "legend", "aria-hidden": "true" }, legend, h("li", { class: "legend-end" }, this.when)),
      this.canvas, this.details);

    const sized = new ResizeObserver(() => this.#size());
    sized.observe(this.canvas);
    scope.end(() => sized.disconnect());
    scope.end(() => this.plot?.destroy());
    theme.hear(scope, () => this.#paint());
    this.#paint();
  }

  /**
   * @param {number[]} times ms
   * @param {(number | null)[][]} values by line
   */
  set(times, values) {
    this.data = [times.map((t) => t / 1000), ...values];
    if (this.plot) this.plot.setData(this.data);
    else this.#size();
    this.#tell(this.plot?.cursor.idx ?? null);
    if (this.details.open) this.#table();
    if (Date.now() - this.describedAt > DESCRIBE_MS && times.length) {
      this.describedAt = Date.now();
      const last = this.#at(times.length - 1);
      this.canvas.setAttribute("aria-label", `${this.label}: ${this.describe(last)}`);
    }
  }

  #at(index) {
    return this.shown(this.lines.map((_, line) => this.data[line + 1][index] ?? null));
  }

  #tell(index) {
    const last = this.data[0].length - 1;
    const at = index === null || index > last ? last : index;
    if (at < 0) return;
    this.#at(at).forEach((value, line) => say(this.values[line], value === null ? "–" : this.format(value)));
    say(this.when, index === null ? "now" : moment(this.data[0][at] * 1000));
  }

  #paint() {
    this.lines.forEach((line, at) => {
      const { style, classList } = this.swatches[at];
      classList.toggle("line", !line.filled);
      if (line.filled) style.background = line.colour();
      else style.borderTop = `2px ${line.dash || "solid"} ${line.colour()}`;
    });
    this.plot?.redraw(false, true);
  }

  #size() {
    const width = this.canvas.clientWidth;
    if (!width || !this.data[0].length) return;
    if (this.plot) this.plot.setSize({ width, height: this.height });
    else this.plot = new window.uPlot(this.#options(width), this.data, this.canvas);
  }

  #options(width) {
    const font = '11px Inter, "Liberation Sans", Arial, sans-serif';
    const quiet = () => colour("--muted");
    const grid = { stroke: () => colour("--grid"), width: 1 };
    return {
      width, height: this.height, padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
      scales: {
        // A short history fills the chart.
        x: { time: true, range: () => this.#span() },
        y: { range: (_, __, max) => [0, Math.max(max > 0 && max < 4 && !this.lines[0].filled ? 1 : 4, (max || 0) * 1.08)] },
      },
      series: [{}, ...this.lines.map((line) => ({
        // A line between the layers separates them, too.
        label: line.label, stroke: () => line.filled ? colour("--surface") : line.colour(), width: line.filled ? 1.25 : 1.75,
        dash: DASHES[line.dash || ""],
        fill: line.filled ? () => line.colour() : undefined, points: { show: false }, spanGaps: false,
      }))],
      axes: [
        { stroke: quiet, font, grid: { show: false }, ticks: { show: false }, size: 28, space: 70,
          values: (_, splits) => splits.map((at) => this.#time(at * 1000)) },
        { stroke: quiet, font, grid, ticks: { show: false }, size: 52, space: 36,
          values: (_, splits) => splits.map((value) => value % 1 ? "" : this.format(value)) },
      ],
      hooks: {
        setCursor: [(plot) => this.#tell(plot.cursor.idx ?? null)],
        drawClear: [(plot) => drawBands(plot, this.bands())],
        draw: [(plot) => this.#events(plot), (plot) => this.#marks(plot)],
      },
    };
  }

  #span() {
    const times = this.data[0];
    const [first, last] = [times[0], times[times.length - 1]];
    return [last - Math.min(this.seconds, Math.max(LEAST_SECONDS, last - first)), last];
  }

  /** Return a label of the time axis. @param {number} ms */
  #time(ms) {
    if (this.seconds > DAY_SECONDS) return date.format(ms);
    return this.seconds < 3600 ? moment(ms).slice(-8) : moment(ms).slice(-8, -3);
  }

  #events(plot) {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    const { min, max } = plot.scales.x;
    ctx.save();
    ctx.lineWidth = ratio;
    for (const { t, text } of this.events()) {
      if (t / 1000 < min || t / 1000 > max) continue;
      const x = Math.round(plot.valToPos(t / 1000, "x", true));
      const bottom = bbox.top + bbox.height;
      ctx.strokeStyle = colour(text ? "--accent" : "--muted");
      ctx.setLineDash(text ? [2 * ratio, 3 * ratio] : []);
      ctx.beginPath();
      ctx.moveTo(x, text ? bbox.top : bottom - 5 * ratio);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    }
    ctx.restore();
  }

  #marks(plot) {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    for (const { value, label } of this.marks()) {
      if (value > plot.scales.y.max) continue;
      const y = Math.round(plot.valToPos(value, "y", true));
      ctx.save();
      ctx.strokeStyle = colour("--over");
      ctx.lineWidth = ratio;
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.font = `600 ${11 * ratio}px Inter, "Liberation Sans", Arial, sans-serif`;
      ctx.textAlign = "left";
      ctx.textBaseline = "alphabetic";
      const width = ctx.measureText(label).width + 12 * ratio;
      const top = y - bbox.top < 24 * ratio ? y + 4 * ratio : y - 20 * ratio;
      ctx.fillStyle = colour("--surface");
      ctx.globalAlpha = 0.88;
      ctx.fillRect(bbox.left + 6 * ratio, top, width, 16 * ratio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colour("--over");
      ctx.fillText(label, bbox.left + 12 * ratio, top + 12 * ratio);
      ctx.restore();
    }
  }

  #table() {
    if (!this.details.open) return;
    const last = this.data[0].length - 1;
    const step = Math.max(1, Math.floor(last / TABLE_ROWS));
    const rows = [];
    for (let at = last; at >= 0 && rows.length < TABLE_ROWS; at -= step) {
      rows.push(h("tr", {}, h("th", { scope: "row" }, moment(this.data[0][at] * 1000)),
        this.#at(at).map((value) => h("td", { class: "number" }, value === null ? "–" : this.format(value)))));
    }
    put(this.rows, rows);
  }
}

/**
 * Return buttons that choose the time range of the charts.
 *
 * @param {typeof import("../data/past.js").RANGES} ranges
 * @param {typeof import("../data/past.js").RANGES[number]} chosen the first choice
 * @param {(range: typeof import("../data/past.js").RANGES[number]) => void} choose
 */
export function spans(ranges, chosen, choose) {
  const buttons = ranges.map((range) => h("button", {
    type: "button", class: "segment", "aria-pressed": String(range === chosen), on: { click: (event) => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === event.currentTarget));
      choose(range);
    } },
  }, range.text));
  return h("div", { class: "segments", role: "group", "aria-label": "Time shown" }, buttons);
}
