/** All namespaces, the worst first: as cards, or as a dense table; both can be searched by name. */

import { h, icon, put, say } from "../core/dom.js";
import { count, duration, moment, plural } from "../core/format.js";
import { here, href } from "../core/router.js";
import { RANK, stateOf } from "../data/health.js";
import { forget, Overview } from "../data/overview.js";
import { may } from "../data/session.js";
import { card } from "../panels/card.js";
import { dense } from "../panels/dense.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { createNamespace } from "./create.js";

const LOOK = "acker.overview";
/** With more namespaces, the table is shown first. */
const FEW = 24;
/** Cards that are drawn before the user asks for all: each has a line. */
const MOST_CARDS = 60;

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function overview(scope, { query }) {
  const data = new Overview(scope);
  const words = h("p", { class: "page-note" }, "Loading");
  const panel = new Panel({ title: "All namespaces", kind: "bare" });
  const found = h("div");
  const more = h("div", { class: "pages" });
  put(panel.body, h("div", { class: "cards" }, skeleton(3), skeleton(3), skeleton(3)));
  const dismiss = (name) => {
    forget(name);
    data.again();
  };
  const table = dense(dismiss);
  const list = h("ul", { class: "cards", role: "list" });
  /** @type {Map<string, ReturnType<typeof card>>} */
  const cards = new Map();
  let text = query.search || "";
  let look = chosen();
  let all = false;
  let order = "";

  const search = h("input", { class: "input name-filter", type: "search", placeholder: "Filter by name", value: text, spellcheck: "false",
    "aria-label": "Filter namespaces by name", on: { input: () => {
      text = search.value.trim();
      // The address can be shared; it adds nothing to the history.
      history.replaceState(null, "", href([], { search: text }));
      data.search(text);
      draw();
    } } });
  const looks = /** @type {[string, string][]} */ ([["cards", "Cards"], ["table", "Table"]]).map(([name, title]) => h("button", {
    class: "segment", type: "button", data: { name }, "aria-pressed": "false", on: { click: () => {
      look = name;
      try {
        localStorage.setItem(LOOK, name);
      } catch {
        // Storage is off: the choice lasts until the page is left.
      }
      draw();
    } } }, title));
  data.search(text);

  function draw() {
    const { error, rows, totals, at } = data.news.value;
    if (!totals) {
      if (error) {
        say(words, "Unknown");
        panel.fail(error);
      }
      return;
    }
    root.classList.toggle("stale", Boolean(error));
    panel.safely(() => {
      const shown = look || (totals.total > FEW ? "table" : "cards");
      for (const each of looks) each.setAttribute("aria-pressed", String(each.dataset.name === shown));
      say(words, summary(rows, totals, text, error ? at : 0));
      if (!rows.length) {
        put(panel.body, empty("inbox", "No namespace yet", "A namespace keeps the trees of one pipeline. Create the first:",
          h("pre", { class: "code" }, "acker-redis create orders --high-water 100000")));
        return;
      }
      const wanted = matching(rows, text);
      const drawn = shown === "cards" && !all ? wanted.slice(0, MOST_CARDS) : wanted;
      if (!wanted.length) put(found, empty("filter", "No match", `No namespace has ${text} in its name.`));
      else if (shown === "table") {
        table.set(drawn, Boolean(error));
        if (table.root.parentNode !== found) put(found, table.root);
      } else {
        for (const row of drawn) {
          const known = cards.get(row.name) || card(row.name, dismiss);
          cards.set(row.name, known);
          known.set(row, Boolean(error));
        }
        // Only a change of level or of the search changes the order; focused elements stay.
        const names = drawn.map((row) => row.name).join("\n");
        if (names !== order) put(list, drawn.map((row) => cards.get(row.name)?.root));
        order = names;
        if (list.parentNode !== found) put(found, list);
      }
      const rest = wanted.length - drawn.length;
      if (rest !== Number(more.dataset.rest || 0)) {
        more.dataset.rest = String(rest);
        put(more, rest ? h("button", { class: "button", type: "button", on: { click: () => {
          all = true;
          draw();
        } } }, `Show ${count(rest)} more`) : null);
      }
      if (found.parentNode !== panel.body) put(panel.body, found, more);
    });
  }
  data.news.hear(scope, draw);

  const create = may("admin") ? h("button", { class: "button", type: "button", on: { click: createNamespace } },
    icon("plus"), "New namespace") : null;
  const root = h("div", { class: "page overview" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, "Namespaces"), words),
      h("div", { class: "tools" }, search, h("div", { class: "segments", role: "group", "aria-label": "Look" }, looks), create)),
    panel.root);
  scope.end(() => {
    if (here().parts.length === 0) history.replaceState(null, "", href([]));
  });
  draw();
  return root;
}

/**
 * Return the rows whose name contains a text, the worst first.
 *
 * @param {import("../data/overview.js").Row[]} rows
 * @param {string} text
 */
function matching(rows, text) {
  const wanted = text.toLowerCase();
  return rows.filter(({ name }) => name.toLowerCase().includes(wanted))
    .sort((a, b) => RANK[stateOf(a)] - RANK[stateOf(b)] || (a.name < b.name ? -1 : 1));
}

/**
 * Return the counts of all namespaces in a sentence.
 *
 * @param {import("../data/overview.js").Row[]} rows
 * @param {import("../data/overview.js").Totals} totals
 * @param {string} text that is searched
 * @param {number} at of the last answer, if the answers have stopped
 */
function summary(rows, { total, counts, every_ms }, text, at) {
  if (!rows.length) return "None yet";
  const gone = rows.filter((row) => row.gone).length;
  const levels = [counts.error ? plural(counts.error, "error") : "", counts.warning ? plural(counts.warning, "warning") : "",
    counts.ok ? `${count(counts.ok)} ok` : "", gone ? `${count(gone)} gone` : ""].filter(Boolean).join(", ");
  const match = text ? `; ${plural(matching(rows, text).length, "match", "matches")}` : "";
  const every = every_ms > 1500 ? `; judged every ${duration(every_ms)}` : "";
  return `${at ? `At ${moment(at)}: ` : ""}${plural(total, "namespace")}: ${levels}${match}${every}`;
}

/** Return the look that the user has chosen; "" before the first choice. */
function chosen() {
  try {
    const look = localStorage.getItem(LOOK);
    return look === "cards" || look === "table" ? look : "";
  } catch {
    return "";
  }
}
