/** Recent failures, grouped by reason. */

import { h, put } from "../core/dom.js";
import { ago, count } from "../core/format.js";
import { lately } from "../data/losses.js";
import { idText } from "../ui/ids.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { verdictChip, verdictHref, why } from "../ui/trees.js";

const COLUMNS = [{ title: "Verdict" }, { title: "Why", kind: "wide bare" }, { title: "Last source id", kind: "id-cell" },
  { title: "Seen", kind: "number seen" }, { title: "Last", kind: "number minor" }];
const SHOWN = 8;

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function failuresPanel(feed, scope) {
  const panel = new Panel({
    title: "Recent failures", fold: "rows", kind: "list failures",
    note: "Verdicts since this page was opened, and untaken ones",
  });
  const { root, body } = table("Recent failures, by reason", COLUMNS, { kind: "stack" });
  put(panel.body, skeleton(5));
  const draw = () => {
    // An error of the verdicts stays until they can be read; other updates do not clear it.
    if (!feed.verdictError.value) panel.safely(list);
  };
  const list = () => {
    const status = feed.status.value;
    if (!status) return;
    const groups = feed.verdicts.failures();
    if (!groups.length) {
      const counted = status.counters.failed + status.counters.expired;
      const recent = feed.losses.value;
      const before = recent ? `${count(recent.nacked)} trees were nacked ${lately(recent)}` : `${count(counted)} trees failed or expired before`;
      put(panel.body, counted
        ? empty(recent ? "clock" : "check", "No failure since this page was opened", `${before}; their sources have taken those verdicts.`)
        : empty("check", "Nothing has failed", "No tree of this namespace has failed or expired."));
      return;
    }
    const now = status.shards[0].now_ms;
    put(body, groups.slice(0, SHOWN).map((group) => row(COLUMNS, [
      verdictChip(group.last), why(group), h("a", { class: "tree-link", href: verdictHref(feed.namespace, group.last) }, idText(group.last.source_id)), count(group.count),
      h("span", { class: "number" }, ago(now - group.last.at_ms))])));
    if (root.parentNode !== panel.body) put(panel.body, root);
  };
  feed.status.hear(scope, draw);
  feed.verdictError.hear(scope, (error) => {
    if (!error) panel.recover();
    else if (error.notOffered) put(panel.body, empty("plug", "Not offered", "This service does not list verdicts."));
    else panel.fail(error);
  });
  return panel.root;
}
