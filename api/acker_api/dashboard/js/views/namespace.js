/** A namespace: its name, its health, and its views. */

import { h, icon, put, say } from "../core/dom.js";
import { connection } from "../core/connection.js";
import { href } from "../core/router.js";
import { duration, moment, plural } from "../core/format.js";
import { Feed } from "../data/feed.js";
import { findings as findingsOf, goneSince, inParts } from "../data/health.js";
import { lossWords } from "../data/losses.js";
import { chip, empty } from "../ui/panel.js";
import { block } from "./block.js";
import { config } from "./config.js";
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
  const health = h("div", { class: "health" }, h("span", { class: "bone" }));
  /** For screen readers: the problems, when they change. */
  const alarms = h("p", { class: "only-read", id: "alarms", role: "status" });
  const badge = h("span", { class: "head-badge" });
  const content = h("div", { class: "content" });
  const draw = () => {
    if (tab === "trees" && anchor) return tree(scope, feed, anchor);
    if (tab === "blocks" && anchor) return block(scope, feed, anchor);
    if (tab === "trees") return trees(scope, feed, place.query);
    return tab === "config" ? config(scope, feed) : live(scope, feed);
  };
  put(content, draw());

  /** Since when there are nacks, and on which edge; a healthy namespace loses some, too. */
  const losses = h("span");
  const help = h("a", { href: href(["runbook", "nacks"]) }, "What to do");
  const lost = h("span", { class: "finding-lost", dir: "ltr" }, losses, help);
  const head = h("strong");
  const turning = h("span");
  const healthy = h("span", {}, head, turning, lost);
  const calm = h("p", { class: "finding ok" }, icon("check"), healthy);
  let turns = "";
  const tellLosses = () => {
    const text = lossWords(feed.losses.value, feed.expired.value);
    say(losses, text && `${text} `);
    lost.hidden = !text;
    say(head, text ? "Healthy, but some trees are nacked." : "Healthy.");
    say(turning, text ? "" : ` ${turns}, and there is room below the high-water mark.`);
  };
  feed.losses.hear(scope, tellLosses);
  feed.expired.hear(scope, tellLosses);
  let said = "";
  let gone = false;
  /** Whether the page shows that the state is unknown. */
  let unknown = false;
  /** @type {string | number | null} */
  let shardsWanted = null;
  feed.status.hear(scope, (status) => {
    if (!status || away(connection.value.state)) return;
    // The namespace exists after all: load the view again.
    if (gone) return void window.dispatchEvent(new HashChangeEvent("hashchange"));
    const findings = findingsOf(status);
    turns = status.ticks === 0 ? "No tick was due yet" : "The rotator is on time";
    const found = JSON.stringify([turns, findings.map(({ level, key }) => [level, key])]);
    const reshard = status.resharding_to ?? null;
    if (shardsWanted !== reshard) {
      shardsWanted = reshard;
      put(badge, reshard === null ? null : chip("info", `resharding to ${plural(Number(reshard), "shard")}`));
    }
    // The history knows better when nacks began than a page that was opened later.
    const began = (each) => each.key === "nacks" && feed.losses.value ? feed.losses.value.since_ms : each.since;
    const text = (each) => words(name, each, since({ ...each, since: began(each) }, feed.history.wrong.get(each.key), status));
    const parts = health.querySelectorAll(".finding-text");
    if (said === found) {
      // Only figures have changed: focused elements and text that is being read aloud stay.
      findings.forEach((each, at) => parts[at] && update(parts[at], text(each)));
      return;
    }
    said = found;
    say(alarms, findings.map((each) => each.title).join(". "));
    put(health, findings.length ? h("ul", { class: "findings", role: "list" }, findings.map((each) =>
      h("li", { class: `finding ${each.level}` }, icon("alert"),
        h("div", { class: "finding-text" }, text(each), each.key === "nacks" ? lost : null))))
      : calm);
    if (!findings.length) healthy.append(lost); // a finding may have had it
    tellLosses();
  });
  feed.error.hear(scope, (error) => {
    if (scope.over) return;
    if (error?.forbidden) return void refuse(error);
    // The connection reports the errors excluded here.
    unknown = Boolean(error) && !error?.away && error?.code !== "namespace-not-found";
    if (unknown) {
      said = "";
      say(alarms, `State unknown: ${error?.title}`);
      const then = feed.status.value ? " The figures below are older." : "";
      put(health, h("div", { class: "finding over" }, icon("alert"), h("div", { class: "finding-text" },
        h("strong", {}, `State unknown: ${error?.title}`), h("span", { class: "finding-since number" }, ""),
        h("p", {}, `${error?.message}.${then}`))));
    }
    root.classList.toggle("stale", unknown || away(connection.value.state));
    if (error?.code !== "namespace-not-found") return;
    if (gone) return;
    gone = true;
    put(health, chip("over", "not found"));
    put(content, empty("inbox", "No such namespace", absence(feed),
      h("a", { class: "button", href: href([]) }, "All namespaces")));
  });
  const refuse = (error) => {
    put(health);
    put(content, empty("alert", "Not permitted", `${sentence(error.message)}`,
      h("a", { class: "button", href: href([]) }, "All namespaces")));
  };
  const turned = ({ state }) => {
    root.classList.toggle("stale", unknown || away(state));
    if (!away(state) || gone) return;
    said = "";
    // The banner says why.
    put(health, h("div", { class: "finding plain" }, icon("clock"), h("div", { class: "finding-text" }, h("strong", {}, "State unknown"))));
  };
  connection.hear(scope, turned);

  const root = h("div", { class: "page" },
    h("div", { class: "page-head" },
      h("div", {},
        h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" },
          h("a", { href: href([]) }, "Namespaces"), icon("right"), h("span", { "aria-current": "page" }, h("bdi", {}, name))),
        h("div", { class: "head-name" }, h("h1", { tabindex: "-1" }, h("bdi", {}, name)), badge)),
      h("nav", { class: "tabs", "aria-label": "Views of the namespace" }, TABS.map(([part, title]) =>
        h("a", { href: href(["ns", name, ...(part ? [part] : [])]), "aria-current": part === (tab === "blocks" ? "trees" : tab) ? "page" : null }, title)))),
    alarms, health, content);
  turned(connection.value);
  // Findings take room and arrive a moment later: content that they would push away stays hidden until then.
  root.classList.add("waiting");
  const show = () => root.classList.remove("waiting");
  feed.status.hear(scope, show);
  feed.error.hear(scope, show);
  const timer = setTimeout(show, WAIT_MS);
  scope.end(() => clearTimeout(timer));
  return root;
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

/** @param {string} state of the connection */
function away(state) {
  return state === "service" || state === "redis";
}

/**
 * Return title, start, meaning and link of a finding.
 *
 * @param {string} namespace
 * @param {import("../data/health.js").Finding} finding
 * @param {string} began
 */
function words(namespace, { key, title, detail, fix, link }, began) {
  // Names are part of sentences: their direction must not affect the text around them.
  return [h("strong", { dir: "ltr" }, title), h("span", { class: "finding-since number" }, began),
    h("p", { dir: "ltr" }, h("span", {}, `${sentence(detail)} `), h("span", { class: "finding-fix" }, fixed(fix)),
      link ? [" ", h("a", { href: href(["ns", namespace, link.tab], link.query) }, link.text)] : null,
      " ", h("a", { href: href(["runbook", key]) }, "Runbook"))];
}

/** @param {string} text */
function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}

/** Return the advice; commands can be selected. @param {string} fix */
function fixed(fix) {
  return inParts(fix).map(({ text, typed }, at) => typed ? h("code", { class: "command" }, text)
    : at ? text : text.charAt(0).toUpperCase() + text.slice(1));
}

/** Update figures in place: focused, selected, or spoken text stays. */
function update(place, made) {
  const [strong, began, p] = place.children;
  say(strong, made[0].textContent);
  say(began, made[1].textContent);
  say(p.firstChild, made[2].firstChild.textContent);
}

/**
 * Return the start of a finding, by Redis's clock.
 *
 * @param {import("../data/health.js").Finding} finding
 * @param {import("../data/history.js").Since | undefined} seen
 * @param {import("../data/types.js").Status} status
 */
function since({ since: known }, seen, { shards }) {
  const now = shards[0].now_ms;
  if (known) return `since ${moment(known)}`;
  if (!seen) return "";
  const began = `since ${moment(seen.t)}`;
  if (seen.first) return `${began} or longer`;
  return now - seen.t < 2000 ? began : `${began}, for ${duration(now - seen.t)}`;
}
