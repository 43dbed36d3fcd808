/** A namespace of the overview as a card. */

import { Sparkline } from "../charts/sparkline.js";
import { h, put, say } from "../core/dom.js";
import { duration, figure, percent, plural, rate } from "../core/format.js";
import { href } from "../core/router.js";
import { rotator, stateOf, troubleOf, wordOf } from "../data/health.js";
import { rates } from "../data/overview.js";
import { chip } from "../ui/panel.js";

/**
 * @param {string} name
 * @param {(name: string) => void} dismiss a namespace that is gone
 */
export function card(name, dismiss) {
  const spark = new Sparkline();
  const badge = h("span", { class: "card-badge" });
  const pending = h("span", { class: "card-figure number" }, "–");
  const trouble = h("p", { class: "card-trouble" });
  const fill = h("span", { class: "share-bar ok" });
  const names = ["Of the mark", "Rotator", "Acked", "Nacked"];
  const values = names.map(() => h("dd", { class: "number" }, "–"));
  const end = h("div", { class: "card-end", hidden: true },
    h("button", { class: "button small", type: "button", "aria-label": `Forget ${name}`, on: { click: () => dismiss(name) } }, "Forget"));
  const root = h("li", { class: "card" },
    h("div", { class: "card-head" },
      h("h3", {}, h("a", { href: href(["ns", name]) }, h("bdi", {}, name))), badge),
    trouble,
    h("div", { class: "card-main" }, h("div", {}, pending, h("span", { class: "card-unit" }, "pending")), spark.root),
    h("span", { class: "share-track", "aria-hidden": "true" }, fill),
    h("dl", { class: "card-facts" }, names.map((each, at) => h("div", {}, h("dt", {}, each), values[at]))), end);
  let said = "";
  return {
    root,
    /**
     * @param {import("../data/overview.js").Row} row
     * @param {boolean} away the answers have stopped: the figures are old, and the state is unknown
     */
    set(row, away) {
      const { told } = row;
      const { level, word } = wordOf(row, away);
      const stale = Boolean(row.error || row.gone);
      const now = `${level} ${word} ${stale}`;
      if (said !== now) {
        said = now;
        put(badge, chip(level, word));
        root.className = `card ${away ? "" : stateOf(row)} ${stale ? "stale" : ""}`;
        end.hidden = !row.gone;
      }
      say(trouble, away ? "" : troubleOf(row) || (told ? quiet(told) : ""));
      if (!told) return;
      const speed = rates(row);
      say(pending, figure(told.open));
      spark.set(row.trace.map((each) => each.open));
      fill.className = `share-bar ${told.high_water}`;
      fill.hidden = !told.pending;
      fill.style.width = `${Math.min(100, told.high_water_ratio * 100)}%`;
      say(values[0], percent(told.high_water_ratio));
      say(values[1], rotator(told).words.toLowerCase());
      say(values[2], speed ? `${rate(speed.acked)} /s` : "–");
      say(values[3], speed ? `${rate(speed.nacked)} /s` : "–");
    },
  };
}

/** Return a line for a namespace without problems. @param {import("../data/types.js").Health} told */
function quiet({ pending, oldest_ms, untaken }) {
  const age = oldest_ms ? `The oldest tree is ${duration(oldest_ms)} old` : pending ? "" : "Nothing is pending";
  return [age, untaken ? plural(untaken, "untaken verdict") : "all verdicts are taken"].filter(Boolean).join("; ");
}
