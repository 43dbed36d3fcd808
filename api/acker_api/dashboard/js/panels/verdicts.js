/** Verdicts as they arrive; the list can be paused and filtered. */

import { foreign, h, icon, put, say } from "../core/dom.js";
import { count, moment, plural } from "../core/format.js";
import { age, empty, Panel } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { verdictChip, why } from "../ui/trees.js";

const COLUMNS = [{ title: "Time", kind: "time minor" }, { title: "Verdict" }, { title: "Source id" }, { title: "Source", kind: "minor" },
  { title: "After", kind: "number" }, { title: "Why" }];
const SHOWN = 60;
const DRAW_MS = 300;
const KINDS = /** @type {[string, string][]} */ ([["", "All"], ["ack", "Acked"], ["nack", "Nacked"], ["touch", "Touched"]]);

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function verdictsPanel(feed, scope) {
  let kind = "";
  let text = "";
  let paused = false;
  let fresh = 0;
  let timer = 0;

  const pause = h("button", { class: "button small", type: "button", "aria-pressed": "false", on: { click: () => {
    paused = !paused;
    fresh = 0;
    pause.setAttribute("aria-pressed", String(paused));
    draw();
  } } }, icon("pause"), h("span", {}, "Pause"));
  const select = h("select", { class: "input small", "aria-label": "Verdicts shown", on: { change: () => {
    kind = select.value;
    drawList();
  } } }, KINDS.map(([value, label]) => h("option", { value }, label)));
  const search = h("input", { class: "input small", type: "search", placeholder: "Filter by id, source, why, edge",
    "aria-label": "Filter verdicts by source id, source, why, edge or message id", spellcheck: "false", on: { input: () => {
      text = search.value.toLowerCase();
      drawList();
    } } });
  const panel = new Panel({ title: "Verdicts", note: "As they arrive", kind: "verdicts list", tools: [search, select, pause] });
  const { root, body } = table("Verdicts, the latest first", COLUMNS, { kind: "tall" });
  const nothing = h("div");
  put(panel.body, nothing, root);

  function drawList() {
    panel.safely(() => {
      const all = feed.verdicts.list;
      const shown = all.filter((each) => (!kind || each.verdict === kind) && (!text
        || [each.source_id, each.source, each.why, each.reason, each.residual || "", ...(each.edges || [])]
          .some((part) => part.toLowerCase().includes(text))))
        .slice(0, SHOWN);
      put(body, shown.map((each) => row(COLUMNS, [
        h("span", { class: "number quiet" }, moment(each.at_ms)), verdictChip(each),
        h("span", {}, foreign(each.source_id),
          each.slot === null || each.slot === undefined ? null : h("span", { class: "quiet" }, ` #${each.slot}`),
          (each.count ?? 1) > 1 ? h("span", { class: "quiet" }, ` ${count(each.count)} trees`) : null),
        foreign(each.source), age(each.age_ms), why(each)])));
      root.hidden = !shown.length;
      nothing.hidden = Boolean(shown.length);
      if (!shown.length) {
        put(nothing, all.length ? empty("filter", "No match", "Widen the filter to see other verdicts.")
          : empty("inbox", "No verdict yet", "Verdicts show here as trees are acked, fail or expire. "
            + "Those that sources took before this page was opened are not shown."));
      }
    });
  }

  function draw() {
    timer = 0;
    if (!paused) drawList();
    put(pause, icon(paused ? "play" : "pause"), h("span", {}, paused ? "Resume" : "Pause"));
    const held = paused && fresh ? `Paused; ${plural(fresh, "new verdict")} since` : paused ? "Paused" : "As they arrive";
    const gaps = feed.gaps.value ? "; some may be missing" : "";
    const dropped = feed.dropped.value ? `; ${count(feed.dropped.value)} more are not shown` : "";
    panel.setNote(held + gaps + dropped);
  }

  // Hundreds per second may arrive: they are drawn together.
  const soon = () => {
    if (!timer) timer = window.setTimeout(draw, DRAW_MS);
  };
  feed.verdicts.news.hear(scope, (news) => {
    fresh += news.length;
    soon();
  });
  feed.gaps.hear(scope, soon);
  feed.dropped.hear(scope, soon);
  scope.end(() => clearTimeout(timer));
  feed.verdictError.hear(scope, (error) => {
    if (!error) panel.recover();
    else if (error.notOffered) {
      root.hidden = true;
      nothing.hidden = false;
      put(nothing, empty("plug", "Not offered", "This service does not list verdicts."));
    } else panel.fail(error);
  });
  drawList();
  say(panel.note, "As they arrive");
  return panel.root;
}
