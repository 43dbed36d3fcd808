/** The main figures. */

import { Sparkline } from "../charts/sparkline.js";
import { h, say } from "../core/dom.js";
import { compact, count, duration, figure, percent, plural, rate } from "../core/format.js";
import { levelOf, rotator } from "../data/health.js";
import { lately } from "../data/losses.js";

/** @typedef {import("../data/feed.js").Feed} Feed */

const NACKS = ["failed", "expired", "overflow", "conflict"];

/**
 * @param {Feed} feed
 * @param {import("../core/scope.js").Scope} scope
 */
export function figures(feed, scope) {
  const tiles = {
    pending: tile("Pending"), oldest: tile("Oldest"), mark: tile("High-water mark"),
    rotator: tile("Rotator"), acked: tile("Acked"), nacked: tile("Nacked"),
    backlog: tile("Untaken verdicts"),
  };
  const spark = new Sparkline();
  tiles.pending.root.append(spark.root);
  const root = h("dl", { class: "figures", "aria-label": "Figures" },
    Object.values(tiles).map(({ root: each }) => each));

  feed.status.hear(scope, (status) => {
    if (!status) return;
    const rates = feed.history.rates() || status.rates || null; // the service's rates, until there are two readings
    const { counters, config } = status;
    tiles.pending.set(figure(status.open), `of ${compact(counters.tracked)} tracked`);
    tiles.pending.root.title = `${count(status.open)} trees without a verdict; `
      + `${count(status.pending)} places in the buckets`;
    spark.set(feed.history.samples.slice(-45).map(
      ({ buckets }) => buckets.reduce((sum, each) => sum + each, 0)));
    const old = oldest(status);
    tiles.oldest.set(old.value, old.words, old.level);
    tiles.mark.set(percent(status.high_water_ratio), `of ${compact(config.high_water)}`, status.high_water);
    const turn = rotator(status);
    const next = nextTick(status);
    tiles.rotator.set(turn.words, turn.level !== "ok"
      ? `overdue by ${duration(status.lag_ms)}` : next ? `next tick in ${duration(next)}` : "a tick is due", turn.level);
    tiles.acked.set(rates ? `${rate(rates.acked)} /s` : "–", `${compact(counters.acked)} in total`);
    const nacks = rates ? NACKS.reduce((sum, name) => sum + (rates[name] || 0), 0) : 0;
    const recent = feed.losses.value;
    // Trees expire at ticks, so between two of them the rate says little.
    tiles.nacked.set(recent ? count(recent.nacked) : rates ? `${rate(nacks)} /s` : "–", recent ? lately(recent)
      : NACKS.filter((name) => counters[name]).map((name) => `${compact(counters[name])} ${name}`).join(", ") || "none in total",
    levelOf(status, "nacks"));
    const waiting = Object.values(status.backlog).reduce((sum, each) => sum + each, 0);
    const sources = Object.values(status.backlog).filter(Boolean).length;
    tiles.backlog.set(figure(waiting), sources ? `for ${plural(sources, "source")}` : "all are taken",
      levelOf(status, "outcomes"));
  });
  return root;
}

/** Return the milliseconds until the next tick, by Redis's clock. @param {import("../data/types.js").Status} status */
function nextTick({ shards, config }) {
  return Math.max(0, Math.min(...shards.map((each) => each.ticked_ms + config.tick_ms - each.now_ms)));
}

/** @param {import("../data/types.js").Status} status */
function oldest(status) {
  const { oldest: found, config } = status;
  if (found?.tree) {
    const level = levelOf(status, "oldest");
    const value = `${found.exact ? "" : "≥ "}${duration(found.tree.age_ms)}`;
    return { value, words: `at most ${duration(config.lifetime_ms ?? config.timeout_ms)}`, level };
  }
  if (!status.pending && !status.expiring) return { value: "–", words: "nothing is pending", level: "ok" };
  // The service does not report its age; its bucket gives it within a tick.
  const bucket = status.pending_by_bucket.findLastIndex((each) => each > 0);
  return {
    value: `< ${duration((bucket + 1) * config.tick_ms)}`, words: `estimate by bucket ${bucket}`, level: "ok",
  };
}

function tile(title) {
  const value = h("span", { class: "figure-value number" }, "–");
  const words = h("span", { class: "figure-words" }, " ");
  const root = h("div", { class: "figure loading" }, h("dt", {}, title), h("dd", {}, value, words));
  return {
    root,
    set(text, more, level = "ok") {
      root.className = `figure ${level}`;
      say(value, text);
      say(words, more);
    },
  };
}
