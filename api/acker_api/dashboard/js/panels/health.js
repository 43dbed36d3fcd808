/** The state of the rotator, and the backlog of each source. */

import { h, put, say } from "../core/dom.js";
import { get, inNamespace } from "../core/api.js";
import { ago, compact, count, duration, percent } from "../core/format.js";
import { fullness, levelOf, rotator } from "../data/health.js";
import { chip, empty, Panel } from "../ui/panel.js";
import { row, table } from "../ui/table.js";
import { foreign } from "../core/dom.js";

const BACKLOG_MS = 3000;
const SHOWN = 50;

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function rotatorPanel(feed, scope) {
  const panel = new Panel({ title: "Rotator", kind: "rotator" });
  const state = h("div", { class: "rotator-state" });
  const names = ["Last tick", "Next tick", "Last tick late by", "Tick interval", "Maximum lifetime", "To drain"];
  const values = names.map(() => h("dd", { class: "number" }, "–"));
  put(panel.body, state, h("dl", { class: "facts" },
    names.map((name, at) => h("div", {}, h("dt", {}, name), values[at]))));
  let said = "";
  panel.follow(scope, feed.status, (status) => {
    const { shards, config } = status;
    const turn = rotator(status);
    const words = status.ticks === 0 && turn.level === "ok" ? "The first tick will show whether a rotator runs."
      : turn.level === "ok" ? "Every shard is rotated in time."
      : turn.level === "high" ? "A tick is overdue; it should come any moment."
        : "No rotator runs for this namespace: nothing expires.";
    if (said !== turn.words) {
      said = turn.words;
      put(state, chip(turn.level, turn.words), h("span", {}, words));
    }
    const now = Math.max(...shards.map((each) => each.now_ms));
    const ticked = Math.min(...shards.map((each) => each.ticked_ms));
    const due = ticked + config.tick_ms - now;
    [
      ago(now - ticked),
      due > 0 ? `in ${duration(due)}` : rotator(status).level === "ok" ? "due now" : `overdue by ${duration(-due)}`,
      duration(status.late_ms), duration(config.tick_ms), duration(config.lifetime_ms ?? config.timeout_ms),
      compact(status.expiring),
    ].forEach((text, at) => say(values[at], text));
  });
  return panel.root;
}

const COLUMNS = [{ title: "Source" }, { title: "Waiting", kind: "number" }, { title: "Oldest", kind: "number" },
  { title: "Of the limit", kind: "share" }];

/**
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function backlogPanel(feed, scope) {
  const panel = new Panel({ title: "Untaken verdicts", note: "By source" });
  const { root, body } = table("Untaken verdicts, by source", COLUMNS);
  const load = async (signal) => {
    try {
      return (await get(inNamespace(feed.namespace, "backlog"), { signal })).sources;
    } catch (error) {
      if (!(/** @type {any} */ (error).notOffered)) throw error;
      const status = feed.status.value;
      return status ? Object.entries(status.backlog).map(([source, waiting]) => (
        { source, waiting, ratio: fullness(status, source), limit: status.config.outcomes_limit, oldest_at_ms: null })) : [];
    }
  };
  panel.load(scope, {
    load, every: BACKLOG_MS,
    draw: (sources) => {
      const waiting = sources.filter((each) => each.waiting).sort((a, b) => b.waiting - a.waiting);
      if (!waiting.length) {
        put(panel.body, empty("check", "No backlog", "Sources have taken all their verdicts."));
        return;
      }
      const status = feed.status.value;
      const now = status?.shards[0].now_ms ?? Date.now();
      const level = status ? levelOf(status, "outcomes") : "ok";
      put(body, waiting.slice(0, SHOWN).map(({ source, waiting: size, oldest_at_ms, ratio, limit }) => row(COLUMNS, [
        foreign(source), count(size), oldest_at_ms ? duration(Math.max(0, now - oldest_at_ms)) : "–",
        share(ratio ?? size / limit, level)])));
      if (root.parentNode !== panel.body) put(panel.body, root);
    },
  });
  return panel.root;
}

/**
 * @param {number} part
 * @param {string} level of all sources: bars below the limit have its colour
 */
function share(part, level) {
  const bar = h("span", { class: `share-bar ${part >= 1 ? "over" : level}` });
  bar.style.width = `${Math.min(100, part * 100)}%`;
  return h("span", { class: "share-box" }, h("span", { class: "share-track" }, bar),
    h("span", { class: "number" }, percent(part)));
}
