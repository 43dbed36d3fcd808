/** The charts of a namespace. */

import { Gauge } from "../charts/gauge.js";
import { Heat } from "../charts/heat.js";
import { drawPending, pendingPlot } from "../charts/pending.js";
import { spans } from "../charts/plot.js";
import { drawRates, ratePlots } from "../charts/rates.js";
import { h, put, say } from "../core/dom.js";
import { compact } from "../core/format.js";
import { Panel, skeleton } from "../ui/panel.js";

/**
 * Return the panels of pending trees and of rates; they share one time range.
 *
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function timePanels(feed, scope) {
  const rates = ratePlots(scope);
  /** @type {import("../charts/plot.js").Plot | null} */
  let pending = null;
  let seconds = 120;
  const left = new Panel({ title: "Pending by bucket", fold: "all", note: "With each tick a tree moves down a bucket; it expires from the last",
    tools: [spans((chosen) => {
      seconds = chosen;
      draw();
    })] });
  const right = new Panel({ title: "Verdicts per second", fold: "all", note: "With tracked trees; nacks have a separate scale" });
  put(left.body, h("div", { class: "plot-space" }));
  put(right.body, rates.map(({ root }) => root));

  const draw = () => {
    const status = feed.status.value;
    if (!status) return;
    left.safely(() => {
      const { buckets } = status.config;
      if (pending?.lines.length !== buckets) {
        pending = pendingPlot(buckets, scope, () => marks(feed.status.value));
        put(left.body, pending.root);
      }
      pending.seconds = seconds;
      drawPending(pending, feed.history);
    });
    right.safely(() => {
      for (const each of rates) each.seconds = seconds;
      drawRates(rates, feed.history);
    });
  };
  feed.status.hear(scope, draw);
  draw();
  return [left.root, right.root];
}

/** @param {import("../data/types.js").Status | null} status */
function marks(status) {
  if (!status) return [];
  const mark = status.config.high_water;
  return [{ value: mark, label: `high-water mark ${compact(mark)}` },
    { value: 2 * mark, label: `twice the mark ${compact(2 * mark)}` }];
}

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function gaugePanel(feed, scope) {
  const gauge = new Gauge();
  const words = h("p", { class: "gauge-note" }, " ");
  const panel = new Panel({ title: "High-water mark", fold: "all", note: "Of the fullest shard", kind: "center" });
  put(panel.body, gauge.root, words);
  panel.follow(scope, feed.status, (status) => {
    gauge.set(status);
    say(words, status.high_water === "ok" ? "There is room: sources continue."
      : status.high_water === "high" ? "Sources wait until it falls." : "New trees are nacked until it falls.");
    words.className = `gauge-note ${status.high_water}`;
  });
  return panel.root;
}

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function shardsPanel(feed, scope) {
  const heat = new Heat();
  const panel = new Panel({ title: "Shards", fold: "all", note: "A stronger colour means a fuller shard" });
  put(panel.body, skeleton(2));
  panel.follow(scope, feed.status, (status) => {
    heat.set(status);
    if (heat.root.parentNode !== panel.body) put(panel.body, heat.root);
  });
  return panel.root;
}
