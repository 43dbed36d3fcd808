/** The windows of sources: over time, and each edge as last reported. Only where a source has reported. */

import { drawWindows, windowPlots } from "../charts/windows.js";
import { foreign, h, put, say } from "../core/dom.js";
import { count, duration, plural } from "../core/format.js";
import { Panel } from "../ui/panel.js";
import { row, table } from "../ui/table.js";

const COLUMNS = [{ title: "Source" }, { title: "Edge" }, { title: "No answer for", kind: "number" }, { title: "In flight", kind: "number" },
  { title: "Window", kind: "number" }, { title: "Waiting", kind: "number" }];
const SHOWN = 12;
const WORDS = "Red: an outage, in which a source gets no answer on an edge for a whole lifetime, and sends only probes. Below, useless work a second: for expired trees";

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 * @param {{events: () => import("../data/past.js").Happening[], bands: () => import("../data/past.js").Band[]}} marks
 */
export function windowsPanel(feed, scope, marks) {
  const panel = new Panel({ title: "Sources and outages", fold: "all", note: WORDS, kind: "windows" });
  const plots = windowPlots(scope, marks);
  const { root: box, body } = table("Edges of sources, as last reported", COLUMNS, { kind: "stack" });
  const more = h("p", { class: "quiet hint" });
  put(panel.body, plots.map(({ root }) => root), box, more);
  const root = h("div", { hidden: true }, panel.root);

  /** @param {import("../data/types.js").Status} status */
  const reports = ({ reports: all = [] }) => {
    const sorted = [...all].sort((one, other) => (other.down_ms ?? -1) - (one.down_ms ?? -1) || other.waiting - one.waiting
      || (one.source + one.edge < other.source + other.edge ? -1 : 1));
    put(body, sorted.slice(0, SHOWN).map(({ source, edge, window: size, in_flight, waiting, down_ms }) => row(COLUMNS, [
      foreign(source), edge ? foreign(edge) : h("span", { class: "quiet" }, "no edge"),
      down_ms === null ? "–" : h("strong", { class: "down" }, duration(down_ms)),
      count(in_flight), size === null ? "none" : count(size), count(waiting)])));
    box.hidden = !all.length;
    say(more, all.length > SHOWN ? `${plural(all.length - SHOWN, "edge")} more; REST and the metrics have all` : all.length ? ""
      : "No source has reported within three minutes.");
  };

  return {
    root,
    /**
     * @param {import("../data/past.js").Moment[]} moments
     * @param {number} seconds
     */
    draw(moments, seconds) {
      const { value: status } = feed.status;
      const known = Boolean(status?.reports?.length) || moments.some(({ bucket }) => bucket?.window || bucket?.in_flight || bucket?.held);
      if (!status || (root.hidden && !known)) return;
      root.hidden = false;
      panel.safely(() => {
        reports(status);
        for (const each of plots) each.seconds = seconds;
        drawWindows(plots, moments, feed.history);
      });
    },
  };
}
