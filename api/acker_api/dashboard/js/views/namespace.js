/** A namespace: its name, its health, and its views. */

import { h, icon, put } from "../core/dom.js";
import { href } from "../core/router.js";
import { moment, plural } from "../core/format.js";
import { Feed } from "../data/feed.js";
import { goneSince } from "../data/health.js";
import { chip, empty } from "../ui/panel.js";
import { block } from "./block.js";
import { config } from "./config.js";
import { healthBanner, sentence } from "./health-banner.js";
import { live } from "./live.js";
import { tree } from "./tree.js";
import { trees } from "./trees.js";

const TABS = /** @type {[string, string][]} */ ([["", "Live"], ["trees", "Trees"], ["config", "Configuration"]]);

const WAIT_MS = 600;

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function namespace(scope, place) {
  const [, name, tab = "", anchor] = place.parts;
  const feed = new Feed(name, scope);
  const content = h("div", { class: "content" });
  const view = () => {
    if (tab === "trees" && anchor) return tree(scope, feed, anchor);
    if (tab === "blocks" && anchor) return block(scope, feed, anchor);
    if (tab === "trees") return trees(scope, feed, place.query);
    return tab === "config" ? config(scope, feed) : live(scope, feed);
  };
  put(content, view());

  const { banner, alarms, turn } = healthBanner(scope, feed, (state, before) => {
    root.classList.toggle("stale", state === "unknown" || state === "away");
    if (state === before) return;
    // The namespace exists after all: load the view again.
    if (before === "gone" && state === "known") return void window.dispatchEvent(new HashChangeEvent("hashchange"));
    const all = h("a", { class: "button", href: href([]) }, "All namespaces");
    if (state === "gone") put(content, empty("inbox", "No such namespace", absence(feed), all));
    if (state === "refused") put(content, empty("alert", "Not permitted", sentence(String(feed.error.value?.message)), all));
  });
  const root = h("div", { class: "page" },
    h("div", { class: "page-head" },
      h("div", {},
        h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" },
          h("a", { href: href([]) }, "Namespaces"), icon("right"), h("span", { "aria-current": "page" }, h("bdi", {}, name))),
        h("div", { class: "head-name" }, h("h1", { tabindex: "-1" }, h("bdi", {}, name)), reshardBadge(scope, feed))),
      h("nav", { class: "tabs", "aria-label": "Views of the namespace" }, TABS.map(([part, title]) =>
        h("a", { href: href(["ns", name, ...(part ? [part] : [])]), "aria-current": part === (tab === "blocks" ? "trees" : tab) ? "page" : null }, title)))),
    alarms, banner, content);
  turn();
  hideUntilKnown(scope, feed, root);
  return root;
}

/** Return the badge of a reshard in progress. */
function reshardBadge(scope, feed) {
  const badge = h("span", { class: "head-badge" });
  let shown = null;
  feed.status.hear(scope, (status) => {
    const target = status?.resharding_to ?? null;
    if (target === shown) return;
    shown = target;
    put(badge, target === null ? null : chip("info", `resharding to ${plural(Number(target), "shard")}`));
  });
  return badge;
}

/** Findings take room and arrive a moment later: content that they would push away stays hidden until then. */
function hideUntilKnown(scope, feed, root) {
  root.classList.add("waiting");
  const show = () => root.classList.remove("waiting");
  feed.status.hear(scope, show);
  feed.error.hear(scope, show);
  const timer = setTimeout(show, WAIT_MS);
  scope.end(() => clearTimeout(timer));
}

/**
 * Return why a namespace may not exist: it was never created, or this tab has seen it before.
 *
 * @param {Feed} feed
 */
function absence(feed) {
  const last = feed.history.samples.at(-1);
  if (feed.status.value) return `${goneSince(Date.now())}.`;
  return last ? `It was there until ${moment(last.t)}; Redis lost data, or it was dropped.` : "It was never created, or it was dropped.";
}
