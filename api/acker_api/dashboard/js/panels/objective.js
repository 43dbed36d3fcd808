/** The completeness objective: how many trees completed in time, over 30 days, and by source. */

import { foreign, h, put, say } from "../core/dom.js";
import { address, get, inNamespace } from "../core/api.js";
import { count } from "../core/format.js";
import { chip, empty, Panel, skeleton } from "../ui/panel.js";
import { row, table } from "../ui/table.js";

const EVERY_MS = 60_000;
const WINDOWS = ["5m", "1h", "6h"];
const COLUMNS = [{ title: "Source" }, { title: "Good trees", kind: "number" }, { title: "Not in time", kind: "number" },
  { title: "Budget left", kind: "number" }, ...WINDOWS.map((name) => ({ title: `Burn rate, ${name}`, kind: "number" }))];

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function objectivePanel(feed, scope) {
  const path = inNamespace(feed.namespace, "slo");
  const panel = new Panel({ title: "Completeness", fold: "all", note: "Trees that completed in time; at a burn rate of 1 the error budget lasts for 30 days",
    tools: [h("a", { class: "button small", download: "", href: `${address(path)}?format=csv`, "aria-label": "Completeness as CSV" }, "CSV")] });
  const sentence = h("p", { class: "objective-sentence" });
  const { root, body } = table("Objective by source", COLUMNS, { kind: "stack" });
  put(panel.body, skeleton(3));
  panel.load(scope, {
    every: EVERY_MS,
    offline: "This service does not know the history.",
    load: (signal) => get(path, { signal }),
    draw: ({ objectives, nacks }) => {
      const [whole] = objectives;
      feed.began = nacks && { since_ms: nacks.since_ms, since_known: nacks.since_known };
      if (whole.good_percent === null) {
        put(panel.body, empty("clock", "No tree has ended yet", whole.over_ms
          ? "The figures begin with the first verdict." : "The rotator has written no history yet; it does so once a minute."));
        return;
      }
      say(sentence, `${capital(whole.sentence)}. `);
      put(body, objectives.map((each) => row(COLUMNS, [
        each.source ? foreign(each.source) : h("strong", {}, "all sources"), percentage(each.good_percent), count(each.ended - each.good),
        budget(each.budget_left_percent), ...WINDOWS.map((name) => burn(each.burn_rates[name]))])));
      if (root.parentNode !== panel.body) put(panel.body, sentence, root);
    },
  });
  return panel.root;
}

/** Rounded down: 100 % means that nothing was missing. @param {number} value */
function percentage(value) {
  return `${Math.floor(value * 1000 + 1e-6) / 1000} %`;
}

/** @param {number | null} left */
function budget(left) {
  if (left === null) return "–";
  const text = left > -1000 ? `${Math.round(left)} %` : "< -1000 %";
  return left < 0 ? chip("over", text) : left < 25 ? chip("high", text) : text;
}

/** @param {{rate: number | null} | undefined} found */
function burn(found) {
  const rate = found?.rate ?? null;
  if (rate === null) return "–";
  const text = String(rate < 10 ? Math.round(rate * 100) / 100 : Math.round(rate));
  return rate > 6 ? chip("over", text) : rate > 1 ? chip("high", text) : text;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
