/** One tree: its state, its expiry, and actions. */

import { foreign, h, icon, put, say } from "../core/dom.js";
import { change, get, inNamespace } from "../core/api.js";
import { ago, count, duration, moment, plural } from "../core/format.js";
import { go, href } from "../core/router.js";
import { may } from "../data/session.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { ask, toast } from "../ui/dialog.js";
import { STATE_WORDS, stateChip, verdictChip, why } from "../ui/trees.js";

/** @typedef {import("../data/types.js").Tree} Tree */

const EVERY_MS = 2000;
const SLOTS = 200;
/** Redis does not keep the reasons of failed trees in blocks. */
const REASON_IN_VERDICT = "its verdict has the reason";

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
  put(facts.body, skeleton(6));
  put(line.body, skeleton(4));
  let state = "";
  let born = 0;

  const reload = facts.load(scope, {
    every: EVERY_MS,
    load: (signal) => pending(inNamespace(namespace, "trees", anchor), signal),
    draw: (/** @type {Tree | null} */ found) => {
      const status = feed.status.value;
      // Computed once: the readings of the tree and of the clock are from different moments.
      if (found && status && !born) born = status.shards[0].now_ms - found.age_ms;
      const now = found ? `${found.state}` : "ended";
      if (state !== now) {
        state = now;
        put(buttons, found ? actions(namespace, found, () => void reload()) : null);
      }
      const name = found?.source_id || (found ? "" : told(feed, anchor)?.source_id);
      put(title, name ? foreign(name, "large") : h("span", { class: "quiet" }, `Anchor ${anchor}`),
        found ? stateChip(found.state) : null);
      if (found) put(facts.body, known(found, feed.status.value?.config.edges || []));
      else put(facts.body, ended(namespace, feed, anchor));
      line.safely(() => put(line.body, timeline(feed, anchor, found, born)));
    },
  });
  feed.verdicts.news.hear(scope, (news) => {
    if (news.some((each) => each.anchor === anchor)) void reload();
  });

  return h("div", { class: "live" },
    h("div", { class: "tree-head" },
      h("div", {}, h("a", { class: "back-link", href: href(["ns", namespace, "trees"]) }, icon("left"), "All trees"), title),
      buttons),
    h("div", { class: "row halves" }, facts.root, line.root));
}

/**
 * Go to the first tree of a block.
 *
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 * @param {string} number
 */
export function block(scope, feed, number) {
  const { namespace } = feed;
  const facts = new Panel({ title: "Block" });
  put(facts.body, skeleton(6));
  facts.load(scope, {
    load: (signal) => pending(inNamespace(namespace, "blocks", number), signal),
    draw: (/** @type {Tree | null} */ first) => {
      if (first) go(href(["ns", namespace, "trees", first.anchor]), true);
      else put(facts.body, empty("inbox", "Not pending", "All its trees have their verdicts, or it was never tracked."));
    },
  });
  return h("div", { class: "live" },
    h("div", { class: "tree-head" }, h("div", {},
      h("a", { class: "back-link", href: href(["ns", namespace, "trees"]) }, icon("left"), "All trees"),
      h("div", { class: "tree-title" }, h("span", { class: "quiet" }, `Block ${number}`)))),
    facts.root);
}

/** Return a tree, or null if it is not pending. @param {string} path @param {AbortSignal} signal */
async function pending(path, signal) {
  try {
    return await get(path, { signal });
  } catch (error) {
    const known = /** @type {any} */ (error);
    if (known.status === 404 && known.code !== "namespace-not-found" && !known.notOffered) return null;
    throw error;
  }
}

/** @param {Tree} tree @param {string[]} edges of the namespace */
function known(tree, edges) {
  const waits = tree.edges || [];
  const pairs = [
    ["State", STATE_WORDS[tree.state] || tree.state],
    ["Source id", tree.source_id ? foreign(tree.source_id, "whole") : "not tracked yet"],
    ["Source", tree.source ? foreign(tree.source) : "not tracked yet"],
    ["Age", h("span", { class: "number" }, duration(tree.age_ms))],
    ["Last row", tree.idle_ms === undefined ? null : h("span", { class: "number" }, ago(tree.idle_ms))],
    ["Waits on", !edges.length || tree.state !== "open" ? null : waits.length
      ? waits.map((each) => foreign(each, "whole")) : "no named edge, or two messages on one edge"],
    ["Bucket", h("span", { class: "number" }, `${tree.bucket}${tree.bucket === 0 ? ", the newest" : ""}`)],
    ["Checksum", h("span", {}, h("code", { class: "mono" }, tree.checksum), tree.state === "open"
      ? h("small", { class: "residual" }, waits.length > 1 ? "Several messages are outstanding: this is the XOR of their ids."
        : "If one message is outstanding, this is its id.") : null)],
    ["Anchor", h("code", { class: "mono" }, tree.anchor)],
    ["Why", tree.why ? foreign(tree.why, "whole") : tree.state === "failed" && tree.block ? REASON_IN_VERDICT : null],
  ];
  return [
    h("dl", { class: "facts wide" }, pairs.filter(([, value]) => value !== null).map(
      ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    tree.block ? blockFacts(tree.block) : null,
  ];
}

/** @param {import("../data/types.js").Block} block */
function blockFacts({ block, slots, open, failed, absent = [] }) {
  const list = (numbers) => numbers.length > SLOTS
    ? `${numbers.slice(0, SLOTS).join(", ")} and ${count(numbers.length - SLOTS)} more` : numbers.join(", ") || "none";
  return h("div", { class: "block" }, h("h3", {}, "Its block"), h("dl", { class: "facts wide" }, [
    ["Block", h("code", { class: "mono" }, block)], ["Trees in it", count(slots - absent.length)],
    [`Open (${count(open.length)})`, h("span", { class: "slots number" }, list(open))],
    [`Failed (${count(failed.length)})`, h("span", { class: "slots number" }, list(failed))],
    ...(absent.length ? [[`Slots without a tree (${count(absent.length)})`, h("span", { class: "slots number" }, list(absent))]] : []),
  ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}

/** Return its last verdict, if the page has it. */
function told(feed, anchor) {
  return feed.verdicts.list.find((each) => each.anchor === anchor);
}

function ended(namespace, feed, anchor) {
  const verdict = told(feed, anchor);
  return empty(verdict?.verdict === "nack" ? "alert" : verdict ? "check" : "inbox", "Not pending",
    verdict ? h("span", {}, verdictChip(verdict), " ", why(verdict))
      : "It has its verdict, or was never tracked. An untaken verdict is listed under Live.",
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
    if (status) points.push(expiry(status, found, first));
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

/** Return when the record expires at the latest; `first` is the time of its first row. */
function expiry({ shards, config }, { bucket, state }, first) {
  const ticks = Math.max(1, config.buckets - bucket);
  const ticked = Math.max(...shards.map((each) => each.ticked_ms));
  const at = ticked + ticks * config.tick_ms;
  const late = at < shards[0].now_ms;
  const end = state === "failed" || state === "untracked" ? "Deletion" : "Expiry";
  return { at: late ? "overdue" : moment(at), level: late ? "over" : "later", title: `${end} at the latest`,
    text: [`${late ? "" : `in ${duration(at - shards[0].now_ms)}, `}with ${ticks === 1 ? "the next tick" : `tick ${ticks} from now`}${config.refresh === "update" ? `, unless a row arrives; its deadline is ${moment(first + config.deadline_ms)}` : ""}`
      + (late ? "; the rotator is late" : "")] };
}

/** @param {string} namespace @param {Tree} tree @param {() => void} done */
function actions(namespace, { anchor, state, source_id }, done) {
  if (!may("operator", namespace)) return null;
  const name = () => h("span", {}, source_id ? foreign(source_id) : `anchor ${anchor}`);
  const path = (verb) => inNamespace(namespace, "trees", anchor, verb);
  const touch = h("button", { class: "button", type: "button", on: { click: async () => {
    const made = await ask({
      title: "Touch this tree?", text: [name(), "This resets its timeout: it gets its full lifetime again."], confirm: "Touch",
      act: async () => { await change("POST", path("touch"), {}); },
    });
    if (made !== null) done(toast("The timeout was reset"));
  } } }, "Touch");
  const fail = h("button", { class: "button danger", type: "button", on: { click: async () => {
    let failed = 1;
    const made = await ask({
      title: "Fail this tree?", text: [name(), "Its source is notified at once, and replays it. This cannot be undone."],
      field: { label: "Why", hint: "The source receives it" }, confirm: "Fail it", danger: true,
      act: async (text) => { failed = (await change("POST", path("fail"), { why: text }))?.failed ?? 1; },
    });
    if (made !== null) done(toast(failed ? "The tree has failed" : "The tree was no longer pending"));
  } } }, "Fail");
  return [touch, state === "failed" ? null : fail];
}
