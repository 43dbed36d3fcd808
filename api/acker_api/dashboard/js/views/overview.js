/** All namespaces; those with problems come first. */

import { Sparkline } from "../charts/sparkline.js";
import { h, icon, put, say } from "../core/dom.js";
import { count, duration, figure, percent, plural, rate } from "../core/format.js";
import { href } from "../core/router.js";
import { findings, rotator, worst } from "../data/health.js";
import { Overview, rates } from "../data/overview.js";
import { may } from "../data/session.js";
import { chip, empty, Panel, skeleton } from "../ui/panel.js";
import { createNamespace } from "./create.js";

const RANK = { over: 0, high: 1, none: 2, ok: 3 };
const WORDS = { ok: "Healthy", high: "Warning", over: "Error" };

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function overview(scope, { query }) {
  const data = new Overview(query.after || "", scope);
  const words = h("p", { class: "page-note" }, "Loading");
  const list = h("ul", { class: "cards", role: "list" });
  const panel = new Panel({ title: "All namespaces", kind: "bare" });
  const pages = h("nav", { class: "pages", "aria-label": "Pages of namespaces" });
  put(panel.body, h("div", { class: "cards" }, skeleton(3), skeleton(3), skeleton(3)));
  /** @type {Map<string, ReturnType<typeof card>>} */
  const cards = new Map();
  let order = "";

  data.news.hear(scope, ({ error, rows }) => {
    if (error && !rows.length) {
      say(words, "Unknown");
      panel.fail(error);
      return;
    }
    panel.safely(() => {
      if (!rows.length) {
        say(words, "None yet");
        put(panel.body, empty("inbox", "No namespace yet", "A namespace keeps the trees of one pipeline. Create the first:",
          h("pre", { class: "code" }, "acker-redis create orders --high-water 100000")));
        return;
      }
      for (const row of rows) {
        const known = cards.get(row.name) || card(row.name);
        cards.set(row.name, known);
        known.set(row);
      }
      // Only a change of level changes the order; names keep it otherwise.
      const sorted = [...rows].sort((a, b) => RANK[state(a)] - RANK[state(b)] || (a.name < b.name ? -1 : 1));
      const wanted = sorted.map((row) => row.name).join("\n");
      if (wanted !== order || list.parentNode !== panel.body) {
        order = wanted;
        put(list, sorted.map((row) => cards.get(row.name)?.root));
        put(panel.body, list);
      }
      const pending = rows.reduce((sum, row) => sum + (row.status?.open || 0), 0);
      const bad = rows.filter((row) => state(row) !== "ok").length;
      const here = rows.length < data.total ? `${rows.length} of ${count(data.total)}` : plural(data.total, "namespace");
      say(words, `${here}, ${plural(pending, "pending tree")}; ${bad ? `${bad} with problems` : "all healthy"}`);
      put(pages, data.after ? h("a", { class: "button", href: href([]) }, "First page") : null,
        data.next ? h("a", { class: "button", href: href([], { after: data.next }) }, "Next page") : null);
    });
  });

  const create = may("admin") ? h("button", { class: "button", type: "button", on: { click: createNamespace } },
    icon("plus"), "New namespace") : null;
  return h("div", { class: "page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, "Namespaces"), words), create),
    panel.root, pages);
}

/** @param {import("../data/overview.js").Row} row @returns {keyof typeof RANK} */
function state({ status, error }) {
  if (error) return "over";
  return status ? worst(findings(status)) : "none";
}

/** Return a line for a namespace without problems. @param {import("../data/types.js").Status} status */
function quiet({ pending, oldest, backlog }) {
  const waiting = Object.values(backlog).reduce((sum, each) => sum + each, 0);
  const age = oldest?.tree ? `The oldest tree is ${duration(oldest.tree.age_ms)} old` : pending ? "" : "Nothing is pending";
  return [age, waiting ? plural(waiting, "untaken verdict") : "all verdicts are taken"].filter(Boolean).join("; ");
}

function card(name) {
  const spark = new Sparkline();
  const badge = h("span", { class: "card-badge" });
  const pending = h("span", { class: "card-figure number" }, "–");
  const trouble = h("p", { class: "card-trouble" });
  const fill = h("span", { class: "share-bar ok" });
  const names = ["Of the mark", "Rotator", "Acked", "Nacked"];
  const values = names.map(() => h("dd", { class: "number" }, "–"));
  const root = h("li", { class: "card" },
    h("div", { class: "card-head" },
      h("h3", {}, h("a", { href: href(["ns", name]) }, h("bdi", {}, name))), badge),
    trouble,
    h("div", { class: "card-main" }, h("div", {}, pending, h("span", { class: "card-unit" }, "pending")), spark.root),
    h("span", { class: "share-track", "aria-hidden": "true" }, fill),
    h("dl", { class: "card-facts" }, names.map((each, at) => h("div", {}, h("dt", {}, each), values[at]))));
  let said = "";
  return {
    root,
    /** @param {import("../data/overview.js").Row} row */
    set(row) {
      const { status, error } = row;
      const found = status ? findings(status) : [];
      // A reshard is shown if there is no other problem.
      const level = error ? "over" : worst(found.filter(({ key }) => key !== "reshard"));
      const reshard = status?.resharding_to !== null && status?.resharding_to !== undefined;
      const words = error ? "No answer" : !status ? "" : level === "ok" && reshard ? "Resharding" : WORDS[level];
      if (said !== words) {
        said = words;
        put(badge, words ? chip(level === "ok" && reshard ? "info" : level, words) : null);
        root.className = `card ${level}`;
      }
      say(trouble, error ? error.message : found[0]?.title || (status ? quiet(status) : ""));
      if (!status) return;
      const speed = rates(row);
      say(pending, figure(status.open));
      spark.set(row.trace.map((each) => each.open));
      fill.className = `share-bar ${status.high_water}`;
      fill.hidden = !status.pending;
      fill.style.width = `${Math.min(100, status.high_water_ratio * 100)}%`;
      say(values[0], percent(status.high_water_ratio));
      say(values[1], rotator(status).words.toLowerCase());
      say(values[2], speed ? `${rate(speed.acked)} /s` : "–");
      say(values[3], speed ? `${rate(speed.nacked)} /s` : "–");
    },
  };
}
