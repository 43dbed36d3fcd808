/** One tree: its state, its expiry, and actions. */

import { foreign, h, icon, put } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { ago, duration, moment } from "../core/format.js";
import { href } from "../core/router.js";
import { expiry } from "../data/lifetime.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { SlotMap, slotOf } from "../ui/slots.js";
import { STATE_WORDS, stateChip, UNTRACKED, verdictChip, why } from "../ui/trees.js";
import { expires, scopeNote } from "./block.js";
import { pending, treeActions } from "./tree-actions.js";

/** @typedef {import("../data/types.js").Tree} Tree */

const EVERY_MS = 2000;
/** Redis does not keep the reasons of failed trees in blocks. */
const REASON_IN_VERDICT = "its verdict has the reason";
const OPERATORS_SEE_IDS = "Operators also see the ids of missing messages.";

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 * @param {string} anchor
 */
export function tree(scope, feed, anchor) {
  const { namespace } = feed;
  const title = h("div", { class: "tree-title" });
  const buttons = h("div", { class: "tools" });
  const facts = new Panel({ title: "Details" });
  const line = new Panel({ title: "Timeline", note: "By Redis's clock" });
  const waits = new Panel({ title: "Where it waits" });
  const slots = new Panel({ title: "Its block" });
  const map = new SlotMap(namespace, slotOf(anchor)?.slot);
  waits.root.hidden = slots.root.hidden = true;
  put(facts.body, skeleton(6));
  put(line.body, skeleton(4));
  let state = "";
  let born = 0;

  const reload = facts.load(scope, {
    every: EVERY_MS,
    load: (signal) => pending(() => get(inNamespace(namespace, "trees", anchor), { signal })),
    draw: (/** @type {Tree | null} */ found) => {
      const status = feed.status.value;
      // Computed once: the readings of the tree and of the clock are from different moments.
      if (found && status && !born) born = status.shards[0].now_ms - found.age_ms;
      const now = found ? `${found.state}` : "ended";
      if (state !== now) {
        state = now;
        put(buttons, found ? treeActions(namespace, found, () => void reload()) : null);
      }
      const name = found?.source_id || (found ? "" : told(feed, anchor)?.source_id);
      put(title, name ? foreign(name, "large") : h("span", { class: "quiet" }, `Anchor ${anchor}`),
        found ? stateChip(found.state) : null);
      if (found) put(facts.body, known(found, status));
      else put(facts.body, ended(namespace, feed, anchor));
      waits.root.hidden = found?.state !== "open";
      if (found?.state === "open") waits.safely(() => put(waits.body, step(found, status?.config.edges || [])));
      slots.root.hidden = !found?.block;
      if (found?.block) slots.safely(() => inBlock(/** @type {any} */ (found.block)));
      line.safely(() => put(line.body, timeline(feed, anchor, found, born)));
    },
  });
  const note = h("div", {});
  const inBlock = (block) => {
    map.set(block);
    put(note, scopeNote(block, map.current));
    if (map.root.parentNode !== slots.body) put(slots.body, map.root, note);
  };
  feed.verdicts.news.hear(scope, (news) => {
    if (news.some((each) => each.anchor === anchor)) void reload();
  });

  return h("div", { class: "live" },
    h("div", { class: "tree-head" },
      h("div", {}, h("a", { class: "back-link", href: href(["ns", namespace, "trees"]) }, icon("left"), "All trees"), title),
      buttons),
    waits.root,
    h("div", { class: "row halves" }, facts.root, line.root), slots.root);
}

/** @param {Tree} tree @param {import("../data/types.js").Status | null} status */
function known(tree, status) {
  const pairs = [
    ["State", STATE_WORDS[tree.state] || tree.state],
    ["Source id", tree.source_id ? foreign(tree.source_id, "whole") : UNTRACKED],
    ["Source", tree.source ? foreign(tree.source) : UNTRACKED],
    ["Age", h("span", { class: "number" }, duration(tree.age_ms))],
    ["Last row", tree.idle_ms === undefined ? null : h("span", { class: "number" }, ago(tree.idle_ms))],
    ...(status ? expires(status, tree) : [["Bucket", tree.bucket]]),
    ["Checksum", tree.checksum ? h("code", { class: "mono" }, tree.checksum) : null],
    ["Anchor", h("code", { class: "mono" }, tree.anchor)],
    ["Block", tree.block ? h("a", { href: href(["ns", status?.namespace || "", "blocks", tree.block.block]) }, tree.block.block) : null],
    ["Why", tree.why ? foreign(tree.why, "whole") : tree.state === "failed" && tree.block ? REASON_IN_VERDICT : null],
  ];
  return h("dl", { class: "facts wide" }, pairs.filter(([, value]) => value !== null).map(
    ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/**
 * Return the step at which an open tree waits, and for operators the id of the message that is missing.
 *
 * @param {Tree} tree
 * @param {string[]} edges of the namespace
 */
function step({ anchor, checksum, edges: waits = [], idle_ms }, edges) {
  const idle = idle_ms === undefined ? null : h("p", {}, "No row has arrived for ", h("strong", { class: "number" }, duration(idle_ms)), ".");
  const names = waits.flatMap((each, at) => [at ? ", " : null, h("strong", {}, foreign(each, "word"))]);
  const where = !edges.length ? ["The namespace has no edges, so Redis does not know the step."]
    : !waits.length ? ["It waits on no named edge, or for two messages on one edge: an even number on one edge does not show."]
      : [`It waits on ${waits.length > 1 ? "edges" : "edge"} `, ...names, ": an odd number of its messages is outstanding there, mostly one."];
  if (!checksum) return h("div", { class: "step" }, h("p", {}, where), idle, h("p", { class: "quiet" }, OPERATORS_SEE_IDS));
  const id = [h("code", { class: "mono" }, checksum), ", in logs ", h("code", { class: "mono" }, messageId(anchor, checksum))];
  return h("div", { class: "step" }, h("p", {}, where), idle, h("p", {}, waits.length > 1
    ? ["Several messages are outstanding, so no single id is known: the XOR of their ids is ", id[0], "."]
    : ["If one message is missing, its id is ", ...id, "."]));
}

/**
 * Return the id of a message as programs log it.
 *
 * @param {string} anchor
 * @param {string} checksum 16 hex digits
 */
export function messageId(anchor, checksum) {
  return `${anchor}:${BigInt(`0x${checksum}`)}`;
}

/** Return its last verdict, if the page has it. */
function told(feed, anchor) {
  return feed.verdicts.list.find((each) => each.anchor === anchor);
}

function ended(namespace, feed, anchor) {
  const verdict = told(feed, anchor);
  return empty(verdict?.verdict === "nack" ? "alert" : verdict ? "check" : "inbox", "Not pending",
    verdict ? h("span", {}, verdictChip(verdict), " ", why(verdict))
      : "It has its verdict, or was never tracked. A search finds a verdict that waits, or that passed lately.",
    h("a", { class: "button", href: href(["search"], { q: anchor, ns: namespace }) }, "Search for it"),
    h("a", { class: "button", href: href(["ns", namespace]) }, "Live"));
}

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {string} anchor
 * @param {Tree | null} found
 * @param {number} born time of its first row; 0: not known yet
 */
function timeline(feed, anchor, found, born) {
  const status = feed.status.value;
  const now = status ? status.shards[0].now_ms : Date.now();
  /** @type {{at: string, level: string, title: any, text: any}[]} */
  const points = [];
  if (found) {
    const first = born || now - found.age_ms;
    points.push({ at: moment(first), level: "info", title: "First row",
      text: found.source ? ["tracked by ", foreign(found.source)] : ["rows arrived before it was tracked"] });
    if (found.idle_ms !== undefined && found.idle_ms < found.age_ms) {
      points.push({ at: moment(now - found.idle_ms), level: "info", title: "Last row", text: [ago(found.idle_ms)] });
    }
    if (found.state === "failed") {
      points.push({ at: "", level: "over", title: "Failed", text: [found.why ? foreign(found.why, "whole") : found.block ? REASON_IN_VERDICT : "no reason given"] });
    }
    points.push({ at: moment(now), level: "now", title: "Now",
      text: [found.state === "open" ? `messages are outstanding after ${duration(found.age_ms)}` : found.state] });
    if (status) points.push(end(status, found, first));
  }
  const last = found ? undefined : told(feed, anchor);
  if (last) {
    points.push({ at: moment(last.at_ms - last.age_ms), level: "info", title: "First row", text: ["tracked by ", foreign(last.source)] });
  }
  for (const each of feed.verdicts.list.filter((one) => one.anchor === anchor).reverse()) {
    points.push({ at: moment(each.at_ms), level: each.verdict === "ack" ? "ok" : each.verdict === "nack" ? "over" : "info",
      title: verdictChip(each), text: [why(each), `, after ${duration(each.age_ms)}`] });
  }
  if (!points.length) return empty("clock", "No data", "This page has neither a record nor a verdict of it.");
  return h("ol", { class: "timeline", role: "list" }, points.map(({ at, level, title, text }) =>
    h("li", { class: level }, h("span", { class: "timeline-at number" }, at),
      h("div", {}, h("strong", {}, title), h("p", {}, text)))));
}

/** Return the end of a record as a point of the timeline; `first` is the time of its first row. */
function end(status, { bucket, state }, first) {
  const { at, ms, ticks, deadline } = expiry(status, bucket, first);
  const late = ms < 0;
  const name = state === "failed" || state === "untracked" ? "Deletion" : "Expiry";
  return { at: late ? "overdue" : moment(at), level: late ? "over" : "later", title: `${name} at the latest`,
    text: [`${late ? "" : `in ${duration(ms)}, `}with ${ticks === 1 ? "the next tick" : `tick ${ticks} from now`}${deadline ? `, unless a row arrives; its deadline is ${moment(deadline)}` : ""}`
      + (late ? "; the rotator is late" : "")] };
}
