/** Verdicts that this page has received, without duplicates, newest first. */

import { Signal } from "../core/signal.js";

/** @typedef {import("./types.js").Outcome} Outcome */

/** Maximum per kind, so that thousands of acks push out no failure. */
const MOST = 500;
const MAX_GROUPS = 200;
/** The time of an event differs from that of its stream entry: the service writes it. */
const NEAR_MS = 5000;
/** The bits of the block and the slot in the anchor of a tree in a block. */
const SLOTS = (1n << 62n) - 1n;

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
    for (const each of outcomes) if (isWhole(each)) this.#replace(each);
    const whole = this.list.filter(isWhole);
    const fresh = outcomes.filter((each) => {
      const name = key(each);
      if (whole.some((block) => holds(block, each))) return false;
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

  /**
   * Remove the single trees that a poll has found before the event of their block.
   *
   * @param {Outcome} block
   */
  #replace(block) {
    const [gone, kept] = [this.list.filter((each) => holds(block, each)), this.list.filter((each) => !holds(block, each))];
    this.list = kept;
    for (const each of gone) {
      this.known.delete(key(each));
      const group = this.groups.get(groupOf(each));
      if (!group) continue;
      group.count -= 1;
      if (!group.count) this.groups.delete(groupOf(each));
    }
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

/** Whether this is the verdict on all trees of a block, from an event. @param {Outcome} outcome */
function isWhole({ anchor }) {
  return anchor.startsWith("block ");
}

/**
 * Whether the verdict on a block is also that on a tree, which a poll has found: those of events, which
 * have no entry, come before that of the block and have another reason.
 *
 * @param {Outcome} block
 * @param {Outcome} tree
 */
function holds(block, { anchor, slot, entry, verdict, source, at_ms }) {
  return Boolean(entry) && slot !== null && verdict === block.verdict && source === block.source
    && Math.abs(at_ms - block.at_ms) < NEAR_MS && block.anchor === `block ${(BigInt(anchor) & SLOTS) >> 12n}`;
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
