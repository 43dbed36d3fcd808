/** Pending trees, page by page, filtered by the URL. */

import { foreign, h, icon, put, say } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { count, plural } from "../core/format.js";
import { go, href } from "../core/router.js";
import { may } from "../data/session.js";
import { age, chip, empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { idText } from "../ui/ids.js";
import { stateChip, treeLink } from "../ui/trees.js";
import { failAll } from "./fail-all.js";

const LIMIT = 50;
/** Maximum number of pages without a match that are read in a row. */
const AHEAD = 20;
const FILTERS = ["source_id", "source", "state", "min_age", "bucket", "kind"];
const STATES = [["open", "open"], ["failed", "failed"], ["complete", "complete"], ["untracked", "late or early rows"]];
const COLUMNS = [{ title: "Source id", kind: "id-cell" }, { title: "Source" }, { title: "State" }, { title: "Age", kind: "number" },
  { title: "Bucket", kind: "number" }, { title: "Anchor", kind: "mono" }];
const UNITS = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 * @param {Record<string, string>} query
 */
export function trees(scope, feed, query) {
  const { namespace } = feed;
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query[name] || ""]));
  const late = Boolean(query.late) || filters.state === "untracked";
  const place = (more) => href(["ns", namespace, "trees"], { ...filters, late: query.late, ...more });
  const narrowed = FILTERS.some((name) => filters[name]);
  const unread = misread(query);

  const panel = new Panel({ title: "Pending trees", note: "The oldest buckets first, shard by shard", kind: "list",
    tools: [
      filters.state === "untracked" ? null : h("a", { class: "button small", role: "button", "aria-pressed": String(late),
        href: place({ late: late ? "" : "1" }), title: "Records of rows that no source has tracked" }, "Late or early rows"),
      may("operator", namespace) && narrowed && !unread ? h("button", { class: "button small", type: "button",
        on: { click: () => failAll(namespace, wanted(filters), () => void reload()) } }, "Fail all that match") : null,
      h("button", { class: "button small", type: "button", on: { click: () => void reload() } }, icon("reload"), "Reload"),
    ].filter(Boolean) });
  const scan = h("p", { class: "scan", role: "status" });
  const { root, body } = table("Trees of this page", COLUMNS, { kind: "stack" });
  const pages = h("nav", { class: "pages", "aria-label": "Pages of trees" });
  put(panel.body, skeleton(8));

  const load = async (signal) => {
    const asked = { ...wanted(filters), tracked: late ? "" : true };
    const path = inNamespace(namespace, "trees");
    let cursor = query.cursor || "";
    let looked = 0;
    for (let page = 1; ; page += 1) {
      const found = await get(path, { query: { ...asked, cursor, limit: LIMIT }, signal });
      looked += found.looked;
      const some = found.trees.length + found.blocks.length > 0;
      if (some || !found.next || page === AHEAD) return { ...found, looked, pages: page };
      say(scan, `No match in ${plural(looked, "record")} so far; continuing.`);
      cursor = found.next;
    }
  };
  const nothing = async () => put(panel.body, empty("filter", "Invalid filter", unread));
  if (unread) void nothing();
  const reload = unread ? nothing : panel.load(scope, {
    load, offline: "This service does not list trees.",
    draw: (found) => {
      say(scan, costs(found, narrowed));
      const rows = [...found.trees.map((each) => treeRow(namespace, each)),
        ...found.blocks.map((each) => blockRow(namespace, each))];
      put(body, rows);
      if (rows.length) put(panel.body, root);
      else if (found.next) {
        put(panel.body, empty("filter", "No match so far", `${plural(found.looked, "record")} were read; `
          + "more are left.", h("a", { class: "button", href: place({ cursor: found.next }) }, "Continue")));
      } else if (narrowed || query.cursor) {
        put(panel.body, empty("filter", "No match", "All records were read. Trees with a verdict are not listed.",
          h("a", { class: "button", href: href(["ns", namespace, "trees"]) }, "Clear filters")));
      } else {
        put(panel.body, empty("check", "Nothing is pending", late ? "Every tree has its verdict."
          : "Every tree has its verdict. Records of late or early rows are hidden."));
      }
      put(pages, query.cursor ? h("a", { class: "button", href: place({}) }, "First page") : null,
        found.next ? h("a", { class: "button", href: place({ cursor: found.next }) }, "Next page") : null);
    },
  });
  return h("div", { class: "live" }, form(filters, place), h("div", {}, panel.root, scan, pages));
}

/** Return the error of an invalid URL: without that part, the page would show, and fail, more trees. */
function misread({ cursor, late, ...filters }) {
  const unknown = Object.keys(filters).find((name) => !FILTERS.includes(name));
  if (unknown) return `${unknown} is not a filter: the filters are ${FILTERS.join(", ")}.`;
  const { min_age, bucket } = filters;
  if (min_age && milliseconds(min_age) === null) return `${min_age} is not an age: write 30s, 5min or 2h.`;
  return bucket && !/^[0-9]+$/.test(bucket) ? `${bucket} is not a bucket: 0 is the newest.` : "";
}

/** Return the query of the API for a URL. */
function wanted({ source_id, source, state, min_age, bucket, kind }) {
  return { source_id, source, state, bucket, kind, min_age_ms: milliseconds(min_age) ?? "" };
}

/**
 * Convert "90", "90s", "5 min", "2h" to milliseconds; null for other texts.
 *
 * @param {string} text
 */
export function milliseconds(text) {
  const match = /^\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)?\s*$/.exec(text);
  return match ? Math.round(Number(match[1]) * UNITS[match[2] || "s"]) : null;
}

/** Return the cost of the search as a sentence. */
function costs({ looked, pages, next, trees, blocks }, narrowed) {
  const found = trees.length + blocks.length;
  const many = pages > 1 ? ` on ${pages} pages` : "";
  const begin = `${plural(found, "entry", "entries")}; ${plural(looked, "record")} read${many}.`;
  if (!narrowed) return `${begin}${next ? "" : " That is all."}`;
  return `${begin} A filter is a scan: there is no index, so each page is read and then filtered.`
    + `${next ? "" : " All records were read."}`;
}

function treeRow(namespace, tree) {
  return row(COLUMNS, [treeLink(namespace, tree), tree.source ? foreign(tree.source) : h("span", { class: "quiet" }, "none"),
    stateChip(tree.state), age(tree.age_ms), count(tree.bucket), foreign(tree.anchor)]);
}

function blockRow(namespace, block) {
  return row(COLUMNS, [
    h("a", { class: "tree-link", href: href(["ns", namespace, "blocks", block.block]) }, idText(block.label)),
    foreign(block.source), chip("plain", `block of ${block.partial ? "up to " : ""}${count(block.slots)}`), age(block.age_ms), count(block.bucket),
    foreign(block.first_anchor)]);
}

function form(filters, place) {
  const input = (name, more = {}) => h("input", {
    class: "input", id: `filter-${name}`, name, value: filters[name], autocomplete: "off", spellcheck: "false", ...more });
  const select = (name, options) => {
    const made = h("select", { class: "input", id: `filter-${name}`, name },
      options.map(([value, label]) => h("option", { value }, label)));
    made.value = filters[name];
    return made;
  };
  const field = (name, label, control) => h("div", { class: "field" }, h("label", { for: `filter-${name}` }, label), control);
  const wrong = h("small", { class: "form-error", id: "age-error", role: "alert" });
  const ageInput = input("min_age", { placeholder: "30s, 5min, 2h", "aria-describedby": "age-error" });
  const made = h("form", { class: "filters", role: "search", "aria-label": "Filter trees", on: {
    submit: (event) => {
      event.preventDefault();
      const found = Object.fromEntries(new FormData(made));
      const bad = found.min_age && milliseconds(String(found.min_age)) === null;
      ageInput.setAttribute("aria-invalid", String(Boolean(bad)));
      say(wrong, bad ? "Write 30s, 5min or 2h." : "");
      if (!bad) go(place({ ...found, cursor: "" }));
    },
  } },
  field("source_id", "Source id", input("source_id", { maxlength: 255 })),
  field("source", "Source", input("source", { maxlength: 64 })),
  field("state", "State", select("state", [["", "Any"], ...STATES])),
  h("div", { class: "field" }, h("label", { for: "filter-min_age" }, "Older than"), ageInput, wrong),
  field("bucket", "Bucket", input("bucket", { inputmode: "numeric", pattern: "[0-9]*", maxlength: 3 })),
  field("kind", "Kind", select("kind", [["", "All"], ["tree", "Trees"], ["block", "Blocks"]])),
  h("div", { class: "filter-buttons" },
    h("button", { class: "button primary", type: "submit" }, "Filter"),
    h("a", { class: "button", href: place(Object.fromEntries(FILTERS.map((name) => [name, ""]))) }, "Clear")));
  return made;
}
