/** How trees and verdicts are shown, the same wherever they are. */

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

/** What a state means. */
export const STATE_WORDS = {
  open: "Some of its messages are outstanding.",
  failed: "A bolt has failed it. Its source is told when it tracks it, or was told if it is in a block.",
  complete: "Complete, in a block that is not: it is told with its block.",
  untracked: "Rows of it have come, and no source has tracked it yet.",
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
 * The source's id of a tree, as a link to its page.
 *
 * @param {string} namespace
 * @param {Tree} tree
 */
export function treeLink(namespace, { anchor, source_id }) {
  return h("a", { class: "tree-link", href: href(["ns", namespace, "trees", anchor]) },
    source_id ? foreign(source_id) : h("span", { class: "quiet" }, "not tracked yet"));
}

/** Why a tree was nacked, in words. @param {{reason: string, why: string}} outcome */
export function why({ reason, why: said }) {
  if (said) return foreign(said, "why");
  return h("span", { class: "quiet" }, REASONS[reason] || "nothing was said");
}

const REASONS = {
  completed: "complete",
  expired: "nobody finished it in time",
  overflow: "above twice the high-water mark",
  conflict: "its anchor was taken",
  failed: "the bolt gave no reason",
  reset: "its clock was set back",
};
