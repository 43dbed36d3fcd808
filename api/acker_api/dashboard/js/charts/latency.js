/** How long trees took until their verdict: bars by powers of two, of the verdicts that were seen. */

import { h, put, say } from "../core/dom.js";
import { count, duration } from "../core/format.js";

const LEAST_MS = 1;
const STEPS = 24;

export class Latency {
  constructor() {
    this.bars = h("ol", { class: "bars", role: "list", "aria-label": "Time to the verdict" });
    this.summary = h("p", { class: "heat-summary" });
    this.axis = h("div", { class: "bars-axis number", "aria-hidden": "true" });
    this.root = h("div", {}, this.bars, this.axis, this.summary);
  }

  /** @param {import("../data/types.js").Outcome[]} outcomes at least one */
  set(outcomes) {
    const ages = outcomes.map((each) => each.age_ms).sort((a, b) => a - b);
    const [first, last] = [step(ages[0]), step(ages[ages.length - 1])];
    // A bar alone in the middle of nothing tells less than its neighbours do.
    const low = Math.max(0, Math.min(first - 1, last - 7));
    const high = Math.max(last + 1, low + 7);
    const bars = Array.from({ length: high - low + 1 }, () => ({ acked: 0, nacked: 0 }));
    for (const each of outcomes) {
      bars[step(each.age_ms) - low][each.verdict === "nack" ? "nacked" : "acked"] += 1;
    }
    const most = Math.max(...bars.map((bar) => bar.acked + bar.nacked));
    put(this.bars, bars.map(({ acked, nacked }, at) => {
      const from = at + low === 0 ? 0 : bound(at + low);
      const words = `${duration(from)} to ${duration(bound(at + low + 1))}: ${count(acked + nacked)}, `
        + `${count(nacked)} of them nacked`;
      const ok = h("span", { class: "bar ok" });
      const bad = h("span", { class: "bar over" });
      ok.style.height = `${100 * acked / most}%`;
      bad.style.height = `${100 * nacked / most}%`;
      return h("li", { title: words }, h("span", { class: "only-read" }, words), bad, ok);
    }));
    const steps = [0, 0.5, 1].map((part) => duration(bound(low + Math.round(part * bars.length))));
    put(this.axis, steps.map((text) => h("span", {}, text)));
    say(this.summary, `Half of ${count(ages.length)} within ${duration(at(ages, 0.5))}, `
      + `99 % within ${duration(at(ages, 0.99))}.`);
  }
}

function step(ms) {
  return Math.max(0, Math.min(STEPS, Math.floor(Math.log2(Math.max(ms, LEAST_MS)))));
}

function bound(number) {
  return LEAST_MS * 2 ** number;
}

function at(sorted, part) {
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}
