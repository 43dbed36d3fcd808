/** One block: the map of its slots, its expiry, and touching it. */

import { foreign, h, icon, put } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { ago, count, duration, moment } from "../core/format.js";
import { href } from "../core/router.js";
import { expiry } from "../data/lifetime.js";
import { empty, Panel, skeleton } from "../ui/panel.js";
import { SlotMap } from "../ui/slots.js";
import { pending, touchBlock } from "./tree-actions.js";

const EVERY_MS = 2000;

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 * @param {string} number
 */
export function block(scope, feed, number) {
  const { namespace } = feed;
  const title = h("div", { class: "tree-title" }, h("span", { class: "quiet" }, `Block ${number}`));
  const buttons = h("div", { class: "tools" });
  const facts = new Panel({ title: "Block" });
  const slots = new Panel({ title: "Slots", note: "Each slot is a tree; done ones are acked when the block ends" });
  const map = new SlotMap(namespace);
  put(facts.body, skeleton(6));
  put(slots.body, skeleton(6));
  let offered = false;

  const reload = facts.load(scope, {
    every: EVERY_MS,
    load: (signal) => pending(() => get(inNamespace(namespace, "blocks", number), { signal })),
    draw: (/** @type {import("../data/types.js").Tree | null} */ first) => {
      slots.root.hidden = !first?.block;
      if (!first?.block) {
        offered = false;
        put(buttons);
        put(facts.body, empty("inbox", "Not pending", "All its trees have their verdicts, or it was never tracked."));
        return;
      }
      put(title, foreign(first.source_id, "large"));
      if (!offered) put(buttons, touchBlock(namespace, first, () => void reload()));
      offered = true;
      put(facts.body, known(first, feed.status.value), scopeNote(first.block));
      slots.safely(() => map.set(/** @type {any} */ (first.block)));
      if (map.root.parentNode !== slots.body) put(slots.body, map.root);
    },
  });
  return h("div", { class: "live" },
    h("div", { class: "tree-head" }, h("div", {},
      h("a", { class: "back-link", href: href(["ns", namespace, "trees"]) }, icon("left"), "All trees"), title), buttons),
    h("div", { class: "row halves" }, facts.root, slots.root));
}

/**
 * @param {import("../data/types.js").Tree} first
 * @param {import("../data/types.js").Status | null} status
 */
function known({ block: found, source_id, source, age_ms, idle_ms, bucket }, status) {
  const { block: number, slots, open, failed, absent = [] } = /** @type {import("../data/types.js").Block} */ (found);
  const waiting = open.filter((slot) => !failed.includes(slot)).length;
  const pairs = [
    ["Label", foreign(source_id, "whole")],
    ["Source", foreign(source)],
    ["Block", h("code", { class: "mono" }, number)],
    ["Trees", `${count(slots - absent.length)}: ${count(waiting)} open, ${count(failed.length)} failed, `
      + `${count(slots - absent.length - waiting - failed.length)} done`],
    ["Age", duration(age_ms)],
    ["Last row", idle_ms === undefined ? null : `${ago(idle_ms)}, to within a tick`],
    ...(status ? expires(status, { bucket, age_ms }) : []),
  ];
  return h("dl", { class: "facts wide" }, pairs.filter(([, value]) => value !== null).map(
    ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/**
 * Return the facts about the end of a record.
 *
 * @param {import("../data/types.js").Status} status
 * @param {{bucket: number, age_ms: number, state?: string}} record
 */
export function expires(status, { bucket, age_ms, state = "open" }) {
  const now = status.shards[0].now_ms;
  const { at, ms, ticks, deadline } = expiry(status, bucket, now - age_ms);
  return [
    ["Bucket", `${bucket}${bucket === 0 ? ", the newest" : ""}`],
    [`${state === "failed" || state === "untracked" ? "Deleted" : "Expires"} at the latest`, ms < 0 ? "overdue: the rotator is late"
      : `${moment(at)}, in ${duration(ms)}, with ${ticks === 1 ? "the next tick" : `tick ${ticks} from now`}`],
    ["Deadline", deadline ? moment(deadline) : null],
  ];
}

/** Return which trees Fail and Touch reach. @param {import("../data/types.js").Block} block */
export function scopeNote({ slots, absent = [] }, slot = -1) {
  return h("p", { class: "hint quiet" }, slot < 0
    ? `Touch resets the timeout of all ${count(slots - absent.length)} trees of the block. Fail is for one tree: choose its slot.`
    : `Fail is for this tree only, slot ${slot}. Touch resets the timeout of all ${count(slots - absent.length)} trees of its block.`);
}
