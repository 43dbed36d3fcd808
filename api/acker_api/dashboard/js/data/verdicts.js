/** Verdicts that were seen, each once, the newest first. */

import { Signal } from "../core/signal.js";

/** @typedef {import("./types.js").Outcome} Outcome */

/** Of each kind, so that acks by the thousand drive no failure out. */
const MOST = 500;

export class Verdicts {
  constructor() {
    /** @type {Outcome[]} */
    this.list = [];
    this.known = new Set();
    /** Told with what is new. @type {Signal<Outcome[]>} */
    this.news = new Signal(/** @type {Outcome[]} */ ([]));
  }

  /** @param {Outcome[]} outcomes in any order; those that are known are passed over */
  add(outcomes) {
    const fresh = outcomes.filter((each) => {
      const name = key(each);
      if (this.known.has(name)) return false;
      this.known.add(name);
      return true;
    });
    if (!fresh.length) return;
    this.list = [...fresh, ...this.list].sort((a, b) => b.at_ms - a.at_ms);
    const kept = { ack: 0, nack: 0, touch: 0 };
    this.list = this.list.filter((each) => {
      kept[each.verdict] += 1;
      if (kept[each.verdict] <= MOST) return true;
      this.known.delete(key(each));
      return false;
    });
    this.news.tell(fresh);
  }

  /**
   * The nacks, gathered by what was said of them, the latest first.
   *
   * @returns {{reason: string, why: string, count: number, last: Outcome, tasks: Set<string>}[]}
   */
  failures() {
    const found = new Map();
    for (const each of this.list) {
      if (each.verdict !== "nack") continue;
      const name = JSON.stringify([each.reason, each.why]);
      const group = found.get(name);
      if (group) {
        group.count += each.count ?? 1;
        group.tasks.add(each.task);
      } else {
        found.set(name, {
          reason: each.reason, why: each.why, count: each.count ?? 1, last: each, tasks: new Set([each.task]),
        });
      }
    }
    return [...found.values()];
  }
}

/**
 * A verdict on a block as verdicts: what was acked of it, and what was nacked.
 *
 * @param {import("./types.js").BlockVerdict} told
 * @returns {Outcome[]}
 */
export function ofBlock({ verdict, reason, block, label, task, count, acked, nacked, age_ms, at_ms }) {
  const made = (of, why, trees) => (
    { verdict: of, reason: why, source_id: label, slot: null, anchor: `block ${block}`, age_ms, why: "", at_ms, task, count: trees });
  if (verdict === "touch") return [made("touch", reason, count)];
  return [acked ? made("ack", verdict === "mixed" ? "completed" : reason, acked) : null,
    nacked ? made("nack", reason, nacked) : null].filter((each) => each !== null);
}

/**
 * A tree has one verdict; it may come by an event and by asking, which differ in the rest. Its clock
 * may be set back more than once.
 */
function key({ anchor, verdict, reason, task, at_ms }) {
  return `${anchor}/${verdict}/${reason}/${task}/${verdict === "touch" ? Math.round(at_ms / 1000) : ""}`;
}
