/** The audit log: who changed what. */

import { foreign, h, put } from "../core/dom.js";
import { ApiError, get } from "../core/api.js";
import { alive, failed } from "../core/connection.js";
import { date } from "../core/format.js";
import { href } from "../core/router.js";
import { chip, empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";

const COLUMNS = [{ title: "When", kind: "time" }, { title: "Who", kind: "brief" }, { title: "Action", kind: "brief" },
  { title: "Namespace", kind: "brief" }, { title: "Target", kind: "brief mono" }, { title: "Before", kind: "mono" },
  { title: "After", kind: "mono" }, { title: "Result", kind: "brief" }];
const LIMIT = 50;
/** @type {Record<string, "ok" | "high" | "over">} */
const RESULTS = { done: "ok", begun: "high", failed: "over", refused: "over" };

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function audit(scope, { query }) {
  const panel = new Panel({ title: "Changes", note: "The latest first", kind: "list" });
  const { root, body } = table("Changes by this service", COLUMNS, { kind: "stack" });
  const pages = h("nav", { class: "pages", "aria-label": "Pages of changes" });
  put(panel.body, skeleton(8));
  panel.load(scope, {
    every: query.before ? 0 : 5000,
    offline: "This service has no audit log.",
    load: async (signal) => {
      try {
        const found = await get("/audit", { query: { limit: LIMIT, before: query.before }, signal });
        alive();
        return found;
      } catch (error) {
        if (error instanceof ApiError) failed(error);
        throw error;
      }
    },
    draw: (found) => {
      const { entries } = found;
      if (!entries.length) {
        put(panel.body, empty("check", "Nothing was changed", "The audit log records every manual action: who, what and when."));
        return;
      }
      put(body, entries.map((each) => row(COLUMNS, [
        h("time", { class: "number", datetime: new Date(each.at_ms).toISOString() }, date(each.at_ms)), foreign(text(each.who)), text(each.action),
        each.namespace ? h("a", { href: href(["ns", each.namespace]) }, foreign(each.namespace)) : "",
        said(each.target), said(each.before), said(each.after),
        h("span", {}, result(text(each.result)), each.why ? h("small", {}, " ", foreign(each.why)) : null)])));
      if (root.parentNode !== panel.body) put(panel.body, root);
      put(pages, query.before ? h("a", { class: "button", href: href(["audit"]) }, "Latest") : null,
        found.next ? h("a", { class: "button", href: href(["audit"], { before: found.next }) }, "Older") : null);
    },
  });
  return h("div", { class: "page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, "Audit"),
      h("p", { class: "page-note" }, "Changes through this service: by whom, and the state before"))),
    panel.root, pages);
}

/** Return nothing for an empty value: an empty cell has no label on a small screen. */
function said(value) {
  const words = text(value);
  return words ? foreign(words, "lines") : "";
}

function text(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([name, each]) =>
    `${name}: ${typeof each === "object" ? JSON.stringify(each).replaceAll(",", ", ") : each}`).join("\n");
}

function result(said) {
  if (!said) return "";
  return chip(RESULTS[said] || "plain", said);
}
