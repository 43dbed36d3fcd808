/** Complete latency: of the trees acked lately, or of all. */

import { Latency } from "../charts/latency.js";
import { h, put } from "../core/dom.js";
import { duration, plural } from "../core/format.js";
import { ofAges } from "../data/latency.js";
import { empty, Panel, skeleton } from "../ui/panel.js";

const LATELY_SECONDS = 900;
/** With fewer trees acked lately, the panel shows all trees. */
const LEAST = 20;
const DRAW_MS = 1000;

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function latencyPanel(feed, scope) {
  const chart = new Latency();
  /** The choice of the user; "" before the first one. */
  let wanted = "";
  const buttons = [["lately", "Lately"], ["ever", "Since the beginning"]].map(([name, text]) => h("button", {
    type: "button", class: "segment", "aria-pressed": "false", data: { name }, on: { click: () => {
      wanted = name;
      draw();
    } } }, text));
  const choice = h("div", { class: "segments", role: "group", "aria-label": "Trees counted" }, buttons);
  const panel = new Panel({ title: "Complete latency", fold: "all", note: "From a tree's first row to its ack", tools: [choice] });
  put(panel.body, skeleton(5));
  let timer = 0;

  function draw() {
    timer = 0;
    if (!feed.status.value) return;
    panel.safely(() => {
      const { found, note, shown } = chosen(feed, wanted);
      choice.hidden = !shown;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.name === shown));
      panel.setNote(note);
      if (!found?.total) {
        put(panel.body, empty("clock", shown === "lately" ? "No recent acks" : "No acks yet",
          "The distribution fills as trees are acked."));
        return;
      }
      chart.set(found);
      if (chart.root.parentNode !== panel.body) put(panel.body, chart.root);
    });
  }
  const soon = () => {
    if (!timer) timer = window.setTimeout(draw, DRAW_MS);
  };
  feed.status.hear(scope, soon);
  feed.verdicts.news.hear(scope, soon);
  scope.end(() => clearTimeout(timer));
  draw();
  return panel.root;
}

/** Return the distribution to show, and its note. @returns {{found: import("../data/latency.js").Distribution | null, note: string, shown: string}} */
function chosen(feed, wanted) {
  const { latencies } = feed.history;
  const ever = feed.status.value.latency ? latencies.ever : null;
  if (!ever) {
    const found = ofAges(feed.verdicts.list.filter((each) => each.verdict === "ack").map((each) => each.age_ms));
    return { found, shown: "", note: `Of ${plural(found.total, "ack")} that this page has received` };
  }
  const lately = latencies.over(LATELY_SECONDS);
  const shown = wanted || (lately && lately.total >= LEAST ? "lately" : "ever");
  if (shown === "ever") {
    return { found: ever, shown, note: `From first row to ack, of ${plural(ever.total, "tree")} since the beginning` };
  }
  return { found: lately, shown, note: lately
    ? `From first row to ack, of ${plural(lately.total, "tree")} acked in the last ${duration(lately.ms)}` : "No readings yet" };
}
