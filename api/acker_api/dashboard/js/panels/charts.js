/** The charts of a namespace. */

import { Gauge } from "../charts/gauge.js";
import { Heat } from "../charts/heat.js";
import { drawPending, pendingPlot } from "../charts/pending.js";
import { spans } from "../charts/plot.js";
import { drawRates, ratePlots } from "../charts/rates.js";
import { h, put, say } from "../core/dom.js";
import { compact, count, duration, moment } from "../core/format.js";
import { happenings, moments, outages, Past, RANGES } from "../data/past.js";
import { Panel, skeleton } from "../ui/panel.js";
import { windowsPanel } from "./windows.js";

/** Maximum number of happenings that are listed. */
const MOST_MARKED = 8;

/**
 * Return the panels of pending trees, of rates and of sources; they share one time range.
 *
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function timePanels(feed, scope) {
  const past = new Past(feed.namespace, scope);
  /** @type {import("../data/past.js").Happening[]} */
  let happened = [];
  /** @type {import("../data/past.js").Band[]} */
  let bands = [];
  const drawn = { events: () => happened, bands: () => bands };
  const rates = ratePlots(scope, drawn);
  const windows = windowsPanel(feed, scope, drawn);
  /** @type {import("../charts/plot.js").Plot | null} */
  let pending = null;
  const csv = h("a", { class: "button small", download: "", href: past.csv, "aria-label": "History as CSV" }, "CSV");
  const left = new Panel({ title: "Pending by bucket", fold: "all", note: "With each tick a tree moves down a bucket; it expires from the last",
    tools: [spans(RANGES, past.range, (chosen) => {
      past.choose(chosen);
      csv.setAttribute("href", past.csv);
      draw();
    }), csv] });
  const right = new Panel({ title: "Verdicts per second", fold: "all", note: "With tracked trees; nacks have a separate scale" });
  const marked = h("ul", { class: "happenings", role: "list", "aria-label": "Marked in the charts" });
  const missing = h("p", { class: "quiet hint" });
  put(left.body, h("div", { class: "plot-space" }));
  put(right.body, rates.map(({ root }) => root), marked, missing);

  const draw = () => {
    const status = feed.status.value;
    if (!status) return;
    const found = moments(feed.history, past);
    bands = outages(found);
    left.safely(() => {
      const { buckets } = status.config;
      if (pending?.lines.length !== buckets + 1) {
        pending = pendingPlot(buckets, scope, () => marks(feed.status.value), drawn);
        put(left.body, pending.root);
      }
      pending.seconds = past.range.seconds;
      drawPending(pending, found);
    });
    right.safely(() => {
      for (const each of rates) each.seconds = past.range.seconds;
      drawRates(rates, found, feed.history);
    });
    windows.draw(found, past.range.seconds);
  };
  feed.status.hear(scope, () => {
    // A long range changes with the history only.
    if (past.range.live || !past.buckets.value.length || !pending) draw();
  });
  past.buckets.hear(scope, () => {
    happened = happenings(past, (name, value) => name === "slo_target" ? String(value) : count(value));
    draw();
    const ended = bands.map(({ from, to }) => ({ t: from, text: `Sources got no answer for ${duration(to - from)}` }));
    put(marked, [...happened, ...ended].sort((one, other) => one.t - other.t).filter(({ text }) => text).slice(-MOST_MARKED).map(({ t, text }) =>
      h("li", {}, h("span", { class: "quiet number" }, moment(t)), ` ${text}`)));
  });
  past.error.hear(scope, (error) => say(missing, !error ? "" : error.notOffered
    ? "This service does not keep a history." : `The history is missing: ${error.title}`));
  draw();
  return [left.root, right.root, windows.root];
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
