/** The live view of a namespace. */

import { h } from "../core/dom.js";
import { gaugePanel, shardsPanel, timePanels } from "../panels/charts.js";
import { failuresPanel } from "../panels/failures.js";
import { figures } from "../panels/figures.js";
import { backlogPanel, rotatorPanel } from "../panels/health.js";
import { latencyPanel } from "../panels/latency.js";
import { objectivePanel } from "../panels/objective.js";
import { oldestPanel } from "../panels/oldest.js";
import { verdictsPanel } from "../panels/verdicts.js";
import { waitsPanel } from "../panels/waits.js";

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 */
export function live(scope, feed) {
  const [pending, rates, windows] = timePanels(feed, scope);
  return h("div", { class: "live" },
    figures(feed, scope),
    h("div", { class: "row wide-narrow" }, pending, gaugePanel(feed, scope)),
    h("div", { class: "row halves" }, oldestPanel(feed, scope), failuresPanel(feed, scope)),
    waitsPanel(feed, scope),
    windows,
    h("div", { class: "row wide-narrow" }, rates, rotatorPanel(feed, scope)),
    objectivePanel(feed, scope),
    shardsPanel(feed, scope),
    verdictsPanel(feed, scope),
    h("div", { class: "row halves" }, latencyPanel(feed, scope), backlogPanel(feed, scope)));
}
