/** Verdicts that this page has received, without duplicates, newest first. */

import { Signal } from "../core/signal.js";

/** @typedef {import("./types.js").Outcome} Outcome */

/** Maximum per kind, so that thousands of acks push out no failure. */
const MOST = 500;
const MAX_GROUPS = 200;

/** @typedef {Pick<Outcome, "reason" | "why" | "cause" | "edges"> & {count: number, last: Outcome}} Failure */

export class Verdicts {
  constructor() {
    /** @type {Outcome[]} */
    this.list = [];
    this.known = new Set();
    /** @type {Map<string, Failure>} */
    this.groups = new Map();
    /** Notified with the new verdicts. @type {Signal<Outcome[]>} */
    this.news = new Signal(/** @type {Outcome[]} */ ([]));
  }

  /** @param {Outcome[]} outcomes in any order; known ones are ignored */
  add(outcomes) {
    const fresh = outcomes.filter((each) => {
      const name = key(each);
      if (this.known.has(name)) return false;
      this.known.add(name);
      return true;
    });
    if (!fresh.length) return;
    for (const each of fresh) if (each.verdict === "nack") this.#gather(each);
    // Reasons that contain an id are all different.
    if (this.groups.size > 2 * MAX_GROUPS) {
      this.groups = new Map(this.failures().slice(0, MAX_GROUPS).map((each) => [groupOf(each), each]));
    }
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
   * Return the nacks, grouped by reason, newest first. All received nacks count, also those that are no
   * longer in the list.
   *
   * @returns {Failure[]}
   */
  failures() {
    return [...this.groups.values()].sort((a, b) => b.last.at_ms - a.last.at_ms);
  }

  /** @param {Outcome} nack */
  #gather(nack) {
    const name = groupOf(nack);
    const group = this.groups.get(name);
    if (!group) {
      const { reason, why, cause, edges } = nack;
      this.groups.set(name, { reason, why, cause, edges, count: nack.count ?? 1, last: nack });
    } else {
      group.count += nack.count ?? 1;
      if (nack.at_ms >= group.last.at_ms) group.last = nack;
    }
  }
}

/**
 * Convert the verdicts on a block: one entry for its acks, one for its nacks.
 *
 * @param {import("./types.js").BlockVerdict} told
 * @returns {Outcome[]}
 */
export function ofBlock({ verdict, reason, block, label, source, count, acked, nacked, age_ms, at_ms, cause, edges, idle_ms }) {
  const made = (of, why, trees) => (
    { verdict: of, reason: why, source_id: label, slot: null, anchor: `block ${block}`, age_ms, why: "", at_ms, source, count: trees,
      ...(of === "nack" && cause ? { cause, edges: Object.keys(edges || {}), idle_ms } : {}) });
  if (verdict === "touch") return [made("touch", reason, count)];
  return [acked ? made("ack", verdict === "mixed" ? "completed" : reason, acked) : null,
    nacked ? made("nack", reason, nacked) : null].filter((each) => each !== null);
}

/**
 * Return the name of the group of a nack: expired trees are grouped by their edges.
 *
 * @param {Pick<Outcome, "reason" | "why" | "cause" | "edges">} nack
 */
function groupOf({ reason, why, cause = "", edges = [] }) {
  return JSON.stringify([reason, why, cause, edges]);
}

/**
 * A tree has one verdict. An event and a poll may both have it, with other fields. The timeout of a
 * tree may be reset more than once.
 */
function key({ anchor, verdict, reason, source, at_ms }) {
  return `${anchor}/${verdict}/${reason}/${source}/${verdict === "touch" ? Math.round(at_ms / 1000) : ""}`;
}
