/** On which edges pending trees wait, from a sample of them; only in a namespace with edges. */

import { foreign, h, put } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { count, duration, moment, percent } from "../core/format.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";

const COLUMNS = [{ title: "Edge" }, { title: "Waiting trees", kind: "wide bar-cell" }, { title: "Last row, median", kind: "number" },
  { title: "The longest", kind: "number minor" }, { title: "Expired lately", kind: "number" }, { title: "Since creation", kind: "number minor" }];
const SAMPLE = 1000;
const EVERY_MS = 4000;
const WORDS = "An edge is named by the sender of a message: mostly the queue, and so the program that reads it. Counted are trees with an odd number of messages outstanding there: two missing on one edge cancel each other out";

/**
 * Return a place for the panel. The panel appears once the status has shown that there are edges.
 *
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function waitsPanel(feed, scope) {
  const place = h("div", { hidden: true });
  const begin = (/** @type {import("../data/types.js").Status | null} */ status) => {
    if (!status?.config.edges?.length || !place.hidden) return;
    place.hidden = false;
    put(place, panelOf(feed, scope, status.config.edges.length + 1));
  };
  feed.status.hear(scope, begin);
  begin(feed.status.value);
  return place;
}

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 * @param {number} lines
 */
function panelOf(feed, scope, lines) {
  const panel = new Panel({ title: "Where trees wait", fold: "rows", note: WORDS, kind: "by-edge" });
  const { root, body } = table("Sampled trees, by edge", COLUMNS, { kind: "stack" });
  put(panel.body, skeleton(lines));
  panel.load(scope, {
    every: EVERY_MS,
    offline: "This service does not read where trees wait.",
    load: (signal) => get(inNamespace(feed.namespace, "waits"), { query: { sample: SAMPLE }, signal }),
    draw: (/** @type {import("../data/types.js").Waits} */ found) => {
      feed.expired.set(found.expired);
      const status = feed.status.value;
      if (!status) return;
      panel.setTitle(`Where trees wait (sample of ${count(found.sampled)})`);
      panel.setNote(`${WORDS}. ${expiredWords(found)}`);
      const odd = status.odd || {};
      const shown = linesOf(found, status.config.edges || []).filter(({ edge, trees }) => edge || trees || odd[edge]);
      if (!found.sampled && !shown.some(({ edge }) => odd[edge])) {
        put(panel.body, found.pending
          ? empty("inbox", "No open tree in the sample", "The trees that were read have failed, are complete, or were not tracked yet.")
          : empty("check", "Nothing is pending", "Every tree has its verdict."));
        return;
      }
      put(body, shown.map(({ edge, trees, idle_ms, max_idle_ms }) => row(COLUMNS, [
        edge ? foreign(edge) : h("span", { class: "quiet" }, "no edge or an even number"), bar(trees, found.sampled),
        trees ? duration(idle_ms) : "–", trees ? duration(max_idle_ms) : "–", 
        found.expired ? count(found.expired[edge] || 0) : "–", count(odd[edge] || 0)])));
      if (root.parentNode !== panel.body) put(panel.body, root);
    },
  });
  return panel.root;
}

/**
 * Return a line for each edge, in the order of the configuration: lines that change places cannot be
 * read.
 *
 * @param {import("../data/types.js").Waits} found
 * @param {string[]} edges
 */
export function linesOf(found, edges) {
  return [...edges, ""].map((edge) => found.edges.find((each) => each.edge === edge)
    || { edge, trees: 0, idle_ms: 0, max_idle_ms: 0 });
}

/**
 * Return since when expired trees are counted: the service knows no more than it has watched.
 *
 * @param {import("../data/types.js").Waits} found
 */
export function expiredWords({ expired, expired_since_ms: since }) {
  if (!expired || !since) return "This service does not count the trees that expired lately.";
  const trees = Object.values(expired).reduce((sum, each) => sum + each, 0);
  return `Expired lately: ${trees ? "counted" : "none"} since ${moment(since)}, when the service began to watch (at most a day ago), not when the loss began`;
}

/** @param {number} trees @param {number} sampled */
function bar(trees, sampled) {
  const part = sampled ? trees / sampled : 0;
  const fill = h("span", { class: "share-bar" });
  fill.style.width = `${part * 100}%`;
  return h("span", { class: "bar-box" },
    h("span", { class: "share-track", "aria-hidden": "true" }, trees ? fill : null),
    h("span", { class: "number" }, `${count(trees)} (${percent(part)})`));
}
