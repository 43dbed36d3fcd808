/** Tables with a caption, in a box that scrolls, by keyboard too. */

import { h } from "../core/dom.js";

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {string} [kind] class of its cells: "number" is aligned to the right
 * @property {boolean} [hidden] visible to screen readers only
 */

/**
 * @param {string} caption
 * @param {Column[]} columns
 * @param {{shown?: boolean, kind?: string}} [options] `shown`: the caption is visible
 * @returns {{root: any, body: any}}
 */
export function table(caption, columns, { shown = false, kind = "" } = {}) {
  const body = h("tbody");
  const root = h("div", { class: `table-box ${kind}`, role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {},
      h("caption", { class: shown ? "" : "only-read" }, caption),
      h("thead", {}, h("tr", {}, columns.map(({ title, kind: of = "", hidden }) =>
        h("th", { scope: "col", class: of }, hidden ? h("span", { class: "only-read" }, title) : title)))),
      body));
  return { root, body };
}

/**
 * Return a row. The cell of the first column is its heading.
 *
 * @param {Column[]} columns
 * @param {any[]} cells
 */
export function row(columns, cells) {
  return h("tr", {}, cells.map((cell, at) => h(at ? "td" : "th", {
    class: columns[at].kind || "", scope: at ? null : "row", data: { label: columns[at].title },
  }, cell)));
}
