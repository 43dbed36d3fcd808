/** The search: pending trees, verdicts that wait, and verdicts that passed lately. */

import { foreign, h, put, say } from "../core/dom.js";
import { ago, count, moment, plural } from "../core/format.js";
import { href } from "../core/router.js";
import { Feed } from "../data/feed.js";
import { Search } from "../data/search.js";
import { idText } from "../ui/ids.js";
import { age, chip, empty, Panel } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { stateChip, treeLink, verdictChip, why } from "../ui/trees.js";

const COLUMNS = [{ title: "Source id", kind: "id-cell" }, { title: "Namespace", kind: "brief" }, { title: "Source" },
  { title: "Where" }, { title: "State" }, { title: "Age", kind: "number" }, { title: "More", kind: "wide" }];
const PLACES = { pending: "pending", block: "pending", waits: "verdict waits", passed: "passed lately" };

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function search(scope, { query }) {
  const { q = "", ns = "" } = query;
  const text = q.trim();
  // It keeps the verdicts that pass while the user searches.
  if (ns) void new Feed(ns, scope);
  const panel = new Panel({ title: "Matches", kind: "list" });
  const { root, body } = table("Matches", COLUMNS, { kind: "stack" });
  const more = h("button", { class: "button", type: "button", on: { click: () => void go() } }, "Continue");
  const progress = h("p", { class: "scan", role: "status" });
  const places = h("dl", { class: "facts wide" });
  const where = new Panel({ title: "Where it looked" });
  put(where.body, places);
  const names = h("p", { class: "named" });
  const found = new Search(text, ns, scope.signal);

  const draw = () => panel.safely(() => {
    const hits = [...found.hits.values()];
    put(names, found.named.length ? ["Namespaces with this name: ", ...found.named.slice(0, 20).flatMap((name, at) => [
      at ? ", " : "", h("a", { href: href(["ns", name]) }, h("bdi", {}, name))])] : null);
    put(body, hits.map(line));
    if (hits.length) put(panel.body, root);
    else if (found.complete) {
      put(panel.body, empty("filter", "No match", "No pending tree, no verdict that waits, and none that passed lately matches. "
        + "A source deletes the verdicts that it takes: older ones are in its own log."));
    } else if (!found.running) put(panel.body, empty("filter", "No match so far", "More is left to read: continue."));
    say(progress, `${plural(hits.length, "match", "matches")}. ${found.complete ? "Everything was read." : `${sum(found.namespaces)}${found.running ? ", and reading on." : ". There is more: continue."}`}`);
    more.hidden = found.running || found.complete;
    put(places, found.namespaces.filter(({ begun, error }) => begun || error).slice(0, 50).map(looked));
  });
  const go = async () => {
    try {
      await found.go(draw);
    } catch (error) {
      if (!scope.over) panel.fail(error, () => void go());
    }
  };
  if (text) void go();
  else put(panel.body, empty("filter", "Nothing to search for", "Give a source id or its beginning, an anchor, or a message id such as 4711:40."));
  more.hidden = where.root.hidden = !text;
  const scopes = h("nav", { class: "tabs", "aria-label": "Where to search" },
    ns ? h("a", { href: href(["search"], { q, ns }), "aria-current": "page" }, "In ", h("bdi", {}, ns)) : null,
    h("a", { href: href(["search"], { q }), "aria-current": ns ? null : "page" }, "In all namespaces"));
  return h("div", { class: "page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, "Search"),
      h("p", { class: "page-note" }, text ? foreign(text) : "Source ids, anchors and message ids")), scopes),
    h("div", { class: "live" }, names, h("div", {}, panel.root, progress, more), where.root));

  /** @param {import("../data/search.js").Hit} hit */
  function line({ place: of, namespace, found: each }) {
    const cells = [h("bdi", {}, namespace), each.source ? foreign(each.source) : "–", PLACES[of]];
    if (of === "pending") {
      return row(COLUMNS, [treeLink(namespace, each), ...cells, stateChip(each.state), age(each.age_ms), treeNote(each, text)]);
    }
    if (of === "block") {
      return row(COLUMNS, [h("a", { class: "tree-link", href: href(["ns", namespace, "blocks", each.block]) }, idText(each.label)),
        ...cells, chip("plain", `block of ${each.partial ? "up to " : ""}${count(each.slots)}`), age(each.age_ms), ""]);
    }
    const trees = each.trees > 1;
    const link = trees ? ["ns", namespace, "blocks", each.block] : ["ns", namespace, "trees", each.anchor];
    return row(COLUMNS, [h("a", { class: "tree-link", href: href(link) }, idText(each.source_id)), ...cells,
      h("span", {}, verdictChip(each), trees ? h("span", { class: "quiet" }, ` ${count(each.trees)} trees`) : null),
      age(each.age_ms), h("span", {}, why(each), h("small", {}, ` at ${moment(each.at_ms)}`))]);
  }
}

/** Return on what a tree waits, and whether for the message that was searched for. */
function treeNote({ checksum, state, edges = [], idle_ms }, text) {
  const message = /^[0-9]+:([0-9]{1,19})$/.exec(text)?.[1];
  if (message && checksum && state === "open" && BigInt(`0x${checksum}`) === BigInt(message)) return "Only this message is outstanding.";
  const on = state === "open" && edges.length ? [`waits on ${edges.join(", ")}`] : [];
  return h("span", { class: "quiet" }, [...on, ...(idle_ms === undefined ? [] : [`last row ${ago(idle_ms)}`])].join("; "));
}

/** @param {import("../data/search.js").Looked[]} namespaces */
function sum(namespaces) {
  const read = namespaces.reduce((all, { pending }) => all + pending.looked, 0);
  const total = namespaces.reduce((all, { pending }) => all + Math.max(pending.total, pending.looked), 0);
  const begun = namespaces.filter((each) => each.begun || each.error).length;
  return `Looked through ${count(read)} of ${count(total)} pending trees`
    + (namespaces.length > 1 ? ` in ${count(begun)} of ${count(namespaces.length)} namespaces` : "");
}

/** @param {import("../data/search.js").Looked} place */
function looked({ name, pending, verdicts, recent, error }) {
  const far = ({ looked: read, total, complete }, what) => complete ? `all ${what} (${count(read)})`
    : `${count(read)} of about ${count(Math.max(total, read))} ${what}`;
  const since = recent.since_ms === null ? "no verdicts that passed: no page showed this namespace"
    : `${plural(recent.looked, "verdict")} that passed since ${moment(recent.since_ms)}${recent.complete ? "" : ", some were dropped"}`;
  return h("div", {}, h("dt", {}, h("bdi", {}, name)), h("dd", {}, error
    || `${far(pending, "pending trees")}; ${far(verdicts, "verdicts that wait")}; ${since}`));
}
