/** How trees and verdicts look, on all pages. */

import { idText } from "./ids.js";
import { chip } from "./panel.js";
import { foreign, h } from "../core/dom.js";
import { duration } from "../core/format.js";
import { href } from "../core/router.js";

/** @typedef {import("../data/types.js").Tree} Tree */

const STATES = {
  open: ["info", "open"],
  failed: ["over", "failed"],
  complete: ["ok", "complete"],
  untracked: ["plain", "late or early"],
};

/** The meaning of each state. */
export const STATE_WORDS = {
  open: "Some of its messages are outstanding.",
  failed: "A bolt has failed it. Its source is notified when it tracks the tree, or was notified if it is in a block.",
  complete: "Complete, in a block with open trees: its ack is sent with its block.",
  untracked: "Late rows of a tree that has its verdict, or early rows of a tree that its source is about to track.",
};

/** In place of the source id and the source of a record that no source has tracked. */
export const UNTRACKED = "late or early rows";

/** @param {Tree["state"]} state */
export function stateChip(state) {
  const [level, word] = STATES[state] || ["plain", state];
  return chip(/** @type {any} */ (level), word);
}

/**
 * Return a switch for records that no source has tracked; it is off at first.
 *
 * @param {() => void} turned
 */
export function lateSwitch(turned) {
  const made = { shown: false, root: h("button", { class: "button small", type: "button", "aria-pressed": "false",
    title: STATE_WORDS.untracked, on: { click: () => {
      made.shown = !made.shown;
      made.root.setAttribute("aria-pressed", String(made.shown));
      turned();
    } } }, "Late or early rows") };
  return made;
}

/**
 * Return the page of a verdict: of its tree, or of its block.
 *
 * @param {string} namespace
 * @param {{anchor: string}} verdict of `ofBlock` the anchor is "block 815"
 */
export function verdictHref(namespace, { anchor }) {
  const block = /^block ([0-9]+)$/.exec(anchor);
  return href(["ns", namespace, block ? "blocks" : "trees", block ? block[1] : anchor]);
}

const VERDICTS = { ack: "ok", nack: "over", touch: "info" };

/** @param {import("../data/types.js").Outcome} outcome */
export function verdictChip({ verdict, reason }) {
  const words = verdict === "ack" ? "acked" : verdict === "nack" ? reason : verdict;
  const level = verdict === "nack" && reason !== "failed" ? "high" : VERDICTS[verdict] || "plain";
  return chip(/** @type {any} */ (level), words);
}

/**
 * Return the source id of a tree, as a link to its page.
 *
 * @param {string} namespace
 * @param {Tree} tree
 */
export function treeLink(namespace, { anchor, source_id }) {
  return h("a", { class: "tree-link", href: href(["ns", namespace, "trees", anchor]) },
    source_id ? idText(source_id) : h("span", { class: "quiet" }, UNTRACKED));
}

/**
 * Return why a tree was nacked. The residual of one message is the message's id; that of messages on
 * two edges is not an id.
 *
 * @param {{reason: string, why: string, cause?: string, edges?: string[], residual?: string | null, idle_ms?: number | null}} outcome
 */
export function why({ reason, why: said, cause, edges = [], residual, idle_ms }) {
  if (said) return foreign(said, "why");
  if (!cause) return h("span", { class: "quiet" }, REASONS[reason] || "no reason given");
  const last = idle_ms === null || idle_ms === undefined ? "" : `; last row ${duration(idle_ms)} before`;
  return h("span", {}, cause === "deadline" ? "deadline reached, no ack" : "no ack", on(edges), last,
    residual && !/^0*$/.test(residual) ? h("small", { class: "residual" }, edges.length > 1
      ? " Several messages are unaccounted for; the XOR of their ids is " : " If one message is missing, its id is ",
    h("code", { class: "mono" }, residual)) : null);
}

/** Return the names of edges as a part of a sentence. @param {string[]} edges */
function on(edges) {
  if (!edges.length) return null;
  return h("span", {}, ` on ${edges.length > 1 ? "edges" : "edge"} `,
    edges.flatMap((each, at) => [at ? ", " : null, foreign(each, "word")]));
}

const REASONS = {
  completed: "complete",
  expired: "not completed in time",
  overflow: "above twice the high-water mark",
  conflict: "its anchor was in use",
  failed: "the bolt gave no reason",
  reset: "its timeout was reset",
};
