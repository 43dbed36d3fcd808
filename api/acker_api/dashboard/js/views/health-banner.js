/**
 * The banner of a namespace: whether it is healthy.
 *
 * It shows one state, which `decide` derives from the feed and the connection whenever one of them
 * changes. An element that has the focus, or is being read aloud, stays as long as the state and its
 * findings are the same: then only figures change.
 */

import { h, icon, put, say } from "../core/dom.js";
import { connection } from "../core/connection.js";
import { href } from "../core/router.js";
import { duration, moment } from "../core/format.js";
import { findings as findingsOf, inParts } from "../data/health.js";
import { lossWords } from "../data/losses.js";
import { chip } from "../ui/panel.js";

/**
 * - `waiting`: nothing is known yet.
 * - `known`: findings, or healthy.
 * - `unknown`: the status cannot be read, and the banner says why.
 * - `away`: the service or Redis does not answer; the banner of the page says why.
 * - `refused`: the user may not see the namespace.
 * - `gone`: there is no such namespace.
 *
 * @typedef {"waiting" | "known" | "unknown" | "away" | "refused" | "gone"} State
 */

/**
 * Return what the banner shows.
 *
 * @param {import("../data/feed.js").Feed} feed
 * @param {State} before `gone` stays until a status arrives
 * @returns {State}
 */
function decide(feed, before) {
  const error = feed.error.value;
  const known = feed.status.value && !error;
  if (error?.code === "namespace-not-found" || (before === "gone" && !known)) return "gone";
  if (error?.forbidden) return "refused";
  if (away()) return "away";
  if (error && !error.away) return "unknown";
  return feed.status.value ? "known" : "waiting";
}

function away() {
  return connection.value.state === "service" || connection.value.state === "redis";
}

/**
 * Return the banner, and a line for screen readers with the problems, when they change.
 *
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 * @param {(state: State, before: State) => void} onState called when the state is another one, and
 *   for each error that keeps it
 */
export function healthBanner(scope, feed, onState) {
  const banner = h("div", { class: "health" }, h("span", { class: "bone" }));
  const alarms = h("p", { class: "only-read", id: "alarms", role: "status" });
  const losses = lossLine(scope, feed);
  /** @type {State} */
  let state = "waiting";
  /** The drawn state, with its findings or its error. */
  let drawn = "";

  const drawKnown = () => {
    const status = /** @type {import("../data/types.js").Status} */ (feed.status.value);
    const findings = findingsOf(status);
    const text = (each) => words(feed.namespace, each, since(each, feed, status));
    losses.turns(status.ticks === 0 ? "No tick was due yet" : "The rotator is on time");
    if (!isNew(["known", losses.rotator, findings.map(({ level, key }) => [level, key])])) {
      const parts = banner.querySelectorAll(".finding-text");
      findings.forEach((each, at) => parts[at] && update(parts[at], text(each)));
      return;
    }
    say(alarms, findings.map((each) => each.title).join(". "));
    const items = findings.map((each) => h("li", { class: `finding ${each.level}` }, icon("alert"),
      h("div", { class: "finding-text" }, text(each), each.key === "nacks" ? losses.line : null)));
    put(banner, items.length ? h("ul", { class: "findings", role: "list" }, items) : losses.calm());
    losses.tell();
  };
  const drawUnknown = () => {
    const { title, message } = /** @type {import("../core/api.js").ApiError} */ (feed.error.value);
    const then = feed.status.value ? " The figures below are older." : "";
    if (!isNew(["unknown", title, message, then])) return;
    say(alarms, `State unknown: ${title}`);
    put(banner, finding("over", "alert", h("strong", {}, `State unknown: ${title}`),
      h("span", { class: "finding-since number" }, ""), h("p", {}, `${message}.${then}`)));
  };
  const draw = {
    waiting: () => {},
    known: drawKnown,
    unknown: drawUnknown,
    away: () => isNew(["away"]) && put(banner, finding("plain", "clock", h("strong", {}, "State unknown"))),
    refused: () => isNew(["refused"]) && put(banner),
    gone: () => isNew(["gone"]) && put(banner, chip("over", "not found")),
  };

  function isNew(what) {
    const now = JSON.stringify(what);
    const changed = now !== drawn;
    drawn = now;
    return changed;
  }

  const turn = () => {
    if (scope.over) return;
    const before = state;
    state = decide(feed, before);
    draw[state]();
    onState(state, before);
  };
  feed.status.hear(scope, turn);
  feed.error.hear(scope, turn);
  connection.hear(scope, turn);
  return { banner, alarms, turn };
}

function finding(level, sign, ...children) {
  return h("div", { class: `finding ${level}` }, icon(sign), h("div", { class: "finding-text" }, children));
}

/**
 * Make the line that says since when there are nacks, and on which edge; a healthy namespace loses
 * some, too. It stands in the finding about nacks, or else below "Healthy".
 */
function lossLine(scope, feed) {
  const losses = h("span");
  const help = h("a", { href: href(["runbook", "nacks"]) }, "What to do");
  const line = h("span", { class: "finding-lost", dir: "ltr" }, losses, help);
  const head = h("strong");
  const turning = h("span");
  const healthy = h("span", {}, head, turning, line);
  const made = {
    line,
    /** How the rotator is, in words. */
    rotator: "",
    turns(words) {
      made.rotator = words;
    },
    calm() {
      healthy.append(line); // a finding may have had it
      return h("p", { class: "finding ok" }, icon("check"), healthy);
    },
    tell() {
      const text = lossWords(feed.losses.value, feed.expired.value);
      say(losses, text && `${text} `);
      line.hidden = !text;
      say(head, text ? "Healthy, but some trees are nacked." : "Healthy.");
      say(turning, text ? "" : ` ${made.rotator}, and there is room below the high-water mark.`);
    },
  };
  feed.losses.hear(scope, made.tell);
  feed.expired.hear(scope, made.tell);
  return made;
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

/** Return a text as a sentence. @param {string} text */
export function sentence(text) {
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
 * @param {import("../data/feed.js").Feed} feed
 * @param {import("../data/types.js").Status} status
 */
function since(finding, feed, { shards }) {
  // The history knows better when nacks began than a page that was opened later.
  const known = finding.key === "nacks" && feed.losses.value ? feed.losses.value.since_ms : finding.since;
  if (known) return `since ${moment(known)}`;
  const seen = feed.history.wrong.get(finding.key);
  if (!seen) return "";
  const now = shards[0].now_ms;
  const began = `since ${moment(seen.t)}`;
  if (seen.first) return `${began} or longer`;
  return now - seen.t < 2000 ? began : `${began}, for ${duration(now - seen.t)}`;
}
