/** One cell per shard: a fuller shard has a stronger colour, a late one has a frame. */

import { h, put, say } from "../core/dom.js";
import { compact, count, duration, percent, plural } from "../core/format.js";
import { rotator } from "../data/health.js";

/** With more shards, cells have no figures. */
const FIGURES = 64;

export class Heat {
  constructor() {
    this.summary = h("p", { class: "heat-summary" }, " ");
    this.cells = h("ol", { class: "heat", role: "list" });
    this.root = h("div", {}, this.cells, this.summary);
    /** @type {any[]} */
    this.items = [];
  }

  /** @param {import("../data/types.js").Status} status */
  set({ shards, config }) {
    if (this.items.length !== shards.length) this.#make(shards.length);
    const share = config.high_water / config.shards;
    const fills = shards.map((shard) => shard.pending.reduce((sum, each) => sum + each, 0));
    shards.forEach((shard, at) => {
      const part = fills[at] / share;
      const { cell, figure } = this.items[at];
      const late = rotator(shard).level;
      const words = [`shard ${shard.shard}: ${count(fills[at])} pending, ${percent(part)} of its share`];
      if (shard.expiring) words.push(`${count(shard.expiring)} to drain`);
      if (late !== "ok") words.push(`its tick is overdue by ${duration(shard.lag_ms)}`);
      const level = part >= 2 ? "over" : part >= 1 ? "high" : "ok";
      const kind = `cell ${level} ${late === "over" ? "late" : ""}`;
      if (cell.className !== kind) cell.className = kind;
      // The weight of the colour has steps, so that most updates change nothing.
      const weight = String(Math.round(Math.min(1, level === "ok" ? part : part / 2) * 20) * 4 + 10);
      if (cell.dataset.weight !== weight) {
        cell.dataset.weight = weight;
        cell.style.setProperty("--weight", `${weight}%`);
      }
      if (cell.title !== words.join(", ")) cell.title = words.join(", ");
      say(figure, shards.length > FIGURES ? "" : compact(fills[at]));
    });
    const fullest = fills.indexOf(Math.max(...fills));
    const emptiest = fills.indexOf(Math.min(...fills));
    const late = shards.filter((shard) => rotator(shard).level === "over");
    say(this.summary, [
      shards.length === 1 ? `One shard holds ${count(fills[0])} trees; the mark is ${count(share)}.`
        : `Fullest: shard ${shards[fullest].shard} with ${count(fills[fullest])} trees. `
          + `Emptiest: shard ${shards[emptiest].shard} with ${count(fills[emptiest])}. `
          + `Share of each: ${count(Math.floor(share))}.`,
      late.length ? `Late ticks: ${late.length === shards.length ? "all shards" : plural(late.length, "shard")}.` : "",
    ].join(" "));
  }

  #make(size) {
    this.items = Array.from({ length: size }, (_, at) => {
      const figure = h("span", { class: "cell-figure number" });
      const cell = h("li", { class: "cell ok" },
        size > FIGURES ? null : h("span", { class: "cell-name", "aria-hidden": "true" }, String(at)), figure);
      return { cell, figure };
    });
    this.cells.classList.toggle("dense", size > FIGURES);
    this.cells.style.maxWidth = `${size * 140}px`;
    put(this.cells, this.items.map(({ cell }) => cell));
  }
}
