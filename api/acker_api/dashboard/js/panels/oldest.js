/** The oldest trees of a sample. */

import { put } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { count } from "../core/format.js";
import { href } from "../core/router.js";
import { age, empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { stateChip, treeLink } from "../ui/trees.js";
import { foreign, h } from "../core/dom.js";

const COLUMNS = [{ title: "Source id" }, { title: "Source" }, { title: "State" }, { title: "Age", kind: "number" }];
const LOOK = 100;
const SHOWN = 8;
const EVERY_MS = 4000;

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function oldestPanel(feed, scope) {
  const { namespace } = feed;
  const panel = new Panel({
    title: "Oldest trees", note: "Stuck trees show here first", kind: "list",
    tools: [h("a", { class: "button small", href: href(["ns", namespace, "trees"]) }, "All trees")],
  });
  const { root, body } = table("Oldest trees of a sample", COLUMNS);
  put(panel.body, skeleton(5));
  panel.load(scope, {
    every: EVERY_MS,
    offline: "This service does not list trees.",
    load: (signal) => get(inNamespace(namespace, "trees"), { query: { limit: LOOK, kind: "tree" }, signal }),
    draw: (found) => {
      const trees = new Map(found.trees.map((tree) => [tree.anchor, tree]));
      const first = feed.status.value?.oldest?.tree;
      if (first) trees.set(first.anchor, first);
      if (!trees.size) {
        panel.setNote("Stuck trees show here first");
        put(panel.body, found.next || feed.status.value?.pending
          ? empty("inbox", "Nothing in the sample", "The pending trees are elsewhere: see all trees.")
          : empty("check", "Nothing is pending", "Every tree has its verdict."));
        return;
      }
      panel.setNote(found.next ? `Of a sample of ${count(trees.size)}, from the oldest buckets`
        : `Of all ${count(trees.size)}`);
      const oldest = [...trees.values()].sort((a, b) => b.age_ms - a.age_ms).slice(0, SHOWN);
      put(body, oldest.map((tree) => row(COLUMNS, [
        treeLink(namespace, tree), tree.source ? foreign(tree.source) : "–", stateChip(tree.state), age(tree.age_ms)])));
      if (root.parentNode !== panel.body) put(panel.body, root);
    },
  });
  return panel.root;
}
