/** The namespaces of the overview as a dense table: a line for each. */

import { h, put, say } from "../core/dom.js";
import { compact, duration, figure, percent, rate } from "../core/format.js";
import { href } from "../core/router.js";
import { troubleOf, wordOf } from "../data/health.js";
import { rates } from "../data/overview.js";
import { chip } from "../ui/panel.js";
import { row as line, table } from "../ui/table.js";

const COLUMNS = [{ title: "Namespace" }, { title: "State" }, { title: "Problem", kind: "wide" },
  { title: "Pending", kind: "number" }, { title: "Of the mark", kind: "number" }, { title: "Acked /s", kind: "number" },
  { title: "Nacked /s", kind: "number" }, { title: "Untaken", kind: "number" }, { title: "Oldest", kind: "number" }];

/** @param {(name: string) => void} dismiss a namespace that is gone */
export function dense(dismiss) {
  const { root, body } = table("Namespaces, the worst first", COLUMNS, { kind: "dense stack" });
  /** @type {Map<string, ReturnType<typeof make>>} */
  const lines = new Map();
  let order = "";
  return {
    root,
    /**
     * @param {import("../data/overview.js").Row[]} rows in their order
     * @param {boolean} away the answers have stopped
     */
    set(rows, away) {
      for (const row of rows) {
        const known = lines.get(row.name) || make(row.name, dismiss);
        lines.set(row.name, known);
        known.set(row, away);
      }
      const wanted = rows.map(({ name }) => name).join("\n");
      if (wanted !== order) put(body, rows.map(({ name }) => lines.get(name)?.root));
      order = wanted;
    },
  };
}

function make(name, dismiss) {
  const state = h("span");
  const trouble = h("span", { class: "dense-trouble" });
  const end = h("button", { class: "button small", type: "button", hidden: true, "aria-label": `Forget ${name}`,
    on: { click: () => dismiss(name) } }, "Forget");
  const figures = COLUMNS.slice(3).map(() => h("span", {}, "–"));
  const root = line(COLUMNS, [h("a", { href: href(["ns", name]) }, h("bdi", {}, name)), state, h("span", {}, trouble, " ", end), ...figures]);
  let said = "";
  return {
    root,
    /** @param {import("../data/overview.js").Row} row @param {boolean} away */
    set(row, away) {
      const { level, word } = wordOf(row, away);
      if (said !== `${level} ${word}`) {
        said = `${level} ${word}`;
        put(state, chip(level, word));
        root.classList.toggle("stale", Boolean(row.error || row.gone));
        end.hidden = !row.gone;
      }
      say(trouble, away ? "" : troubleOf(row));
      const { told } = row;
      if (!told) return;
      const speed = rates(row);
      [figure(told.open), percent(told.high_water_ratio), speed ? rate(speed.acked) : "–", speed ? rate(speed.nacked) : "–",
        compact(told.untaken), told.oldest_ms ? duration(told.oldest_ms) : "–"].forEach((text, at) => say(figures[at], text));
    },
  };
}
