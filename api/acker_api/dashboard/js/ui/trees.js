/** How trees and verdicts look, on all pages. */

import { chip } from "./panel.js";
import { foreign, h } from "../core/dom.js";
import { href } from "../core/router.js";

/** @typedef {import("../data/types.js").Tree} Tree */

const STATES = {
  open: ["info", "open"],
  failed: ["over", "failed"],
  complete: ["ok", "complete"],
  untracked: ["high", "untracked"],
};

/** The meaning of each state. */
export const STATE_WORDS = {
  open: "Some of its messages are outstanding.",
  failed: "A bolt has failed it. Its source is notified when it tracks the tree, or was notified if it is in a block.",
  complete: "Complete, in a block with open trees: its ack is sent with its block.",
  untracked: "Rows of it have arrived, but no source has tracked it yet.",
};

/** @param {Tree["state"]} state */
export function stateChip(state) {
  const [level, word] = STATES[state] || ["plain", state];
  return chip(/** @type {any} */ (level), word);
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
    source_id ? foreign(source_id) : h("span", { class: "quiet" }, "not tracked yet"));
}

/** Return why a tree was nacked. @param {{reason: string, why: string}} outcome */
export function why({ reason, why: said }) {
  if (said) return foreign(said, "why");
  return h("span", { class: "quiet" }, REASONS[reason] || "no reason given");
}

const REASONS = {
  completed: "complete",
  expired: "not completed in time",
  overflow: "above twice the high-water mark",
  conflict: "its anchor was in use",
  failed: "the bolt gave no reason",
  reset: "its timeout was reset",
};
