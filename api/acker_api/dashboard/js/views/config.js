/** The configuration of a namespace, and actions on it. */

import { h, put, say } from "../core/dom.js";
import { change, get, inNamespace } from "../core/api.js";
import { count, duration, plural } from "../core/format.js";
import { go, href } from "../core/router.js";
import { withTick } from "../data/lifetime.js";
import { forget } from "../data/overview.js";
import { may } from "../data/session.js";
import { Panel, skeleton } from "../ui/panel.js";
import { ask, toast } from "../ui/dialog.js";

const FIELDS = [
  { name: "high_water", label: "High-water mark", unit: "trees",
    hint: "At the mark sources wait; at twice the mark new trees are nacked." },
  { name: "tick_ms", label: "Tick", unit: "ms", hint: "With shorter ticks, trees that are stuck or slow expire sooner." },
  { name: "outcomes_limit", label: "Verdicts that may wait", unit: "per source",
    hint: "At this limit a source can track no more until it has taken some." },
  { name: "slo_target", label: "Objective", unit: "%", from: 50, below: 100, hint: "The share of trees that must complete "
    + "in time. The namespace is unhealthy while more than the others are nacked." },
  { name: "slo_ms", label: "Complete within", unit: "ms", from: 0,
    hint: "A tree that takes longer is not good. 0: it must complete before it expires." },
];
const DEADLINE = { name: "deadline_ms", label: "Deadline", unit: "ms",
  hint: "The age at which a tree expires, however many rows arrive; at least as long as the ticks of all buckets." };
const TIMES = ["tick_ms", "deadline_ms", "slo_ms"];

/** Return a value of a setting as text. @param {string} name @param {number} value */
const shown = (name, value) => (name === "slo_target" ? String(value) : count(value));

/** Return the problem of a value of a setting; "" for a valid one. */
function wrong({ label, from = 1, below }, value) {
  if (below) {
    const valid = value >= from && value < below && Math.round(value * 1000) / 1000 === value;
    return valid ? "" : `${label} must be ${from} or more, and below ${below}, with up to 3 decimals.`;
  }
  return Number.isSafeInteger(value) && value >= from ? "" : `${label} must be a whole number of ${from} or more.`;
}

/** Return the settings that can be changed. @param {import("../data/types.js").Config} found */
function fieldsOf(found) {
  return found.refresh === "update" ? [...FIELDS, DEADLINE] : FIELDS;
}

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../data/feed.js").Feed} feed
 */
export function config(scope, feed) {
  const { namespace } = feed;
  const panel = new Panel({ title: "Configuration" });
  put(panel.body, skeleton(6));
  const load = async (signal) => {
    try {
      return await get(inNamespace(namespace, "config"), { signal });
    } catch (error) {
      if (!(/** @type {any} */ (error).notOffered)) throw error;
      return (await get(inNamespace(namespace), { signal })).config;
    }
  };
  panel.load(scope, { load, draw: (found) => put(panel.body, ...content(found)) });

  function content(found) {
    const list = (/** @type {[string, string][]} */ pairs) => h("dl", { class: "facts wide" }, pairs.map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", { class: "number" }, value))));
    const fixed = /** @type {[string, string][]} */ ([
      ["Shards", count(found.shards)], ["Buckets", count(found.buckets)],
      ["Maximum lifetime", duration(found.lifetime_ms ?? found.timeout_ms ?? found.buckets * found.tick_ms)],
      ["Rows reset the timeout", found.refresh === "update" ? "yes" : "no"],
      ["Verdicts are published", found.publish ? "yes" : "no"],
      ["Edges", (found.edges || []).join(", ") || "none"],
    ]);
    if (!may("operator", namespace)) {
      return [list([...fieldsOf(found).map(({ name, label, unit }) => /** @type {[string, string]} */ (
        [label, TIMES.includes(name) ? duration(found[name]) : `${shown(name, found[name])} ${unit}`])), ...fixed]),
      h("p", { class: "quiet hint" }, "Changes need the role operator.")];
    }
    return [form(found), list(fixed)];
  }

  function form(found) {
    const trouble = h("p", { class: "form-error", role: "alert" });
    const save = h("button", { class: "button primary", type: "submit" }, "Save");
    save.disabled = true;
    const fields = fieldsOf(found);
    const inputs = fields.map(({ name, hint }) => h("input", {
      class: "input number", id: `config-${name}`, name, inputmode: "numeric", value: String(found[name]),
      "aria-describedby": hint ? `hint-${name}` : null, autocomplete: "off",
    }));
    const readable = fields.map(() => h("output", { class: "quiet number" }));
    const read = () => inputs.forEach((each, at) => {
      const value = number(each);
      say(readable[at], value > 0 && !wrong(fields[at], value)
        ? (TIMES.includes(fields[at].name) ? duration(value) : shown(fields[at].name, value)) : "");
    });
    const effect = h("output", { class: "effect", for: "config-tick_ms" });
    const changed = () => Object.fromEntries(inputs.filter((each) => number(each) !== found[each.name])
      .map((each) => [each.name, number(each)]));
    const made = h("form", { class: "config-form", novalidate: true, on: {
      input: () => {
        save.disabled = !Object.keys(changed()).length;
        say(trouble, "");
        say(effect, tickWords(feed.status.value, changed().tick_ms).join(" "));
        read();
      },
      submit: async (event) => {
        event.preventDefault();
        const wanted = changed();
        const bad = fields.filter(({ name }) => name in wanted).map((each) => wrong(each, wanted[each.name])).find(Boolean);
        if (bad) {
          say(trouble, bad);
          return;
        }
        const words = Object.entries(wanted).map(([name, value]) =>
          `${fields.find((each) => each.name === name)?.label}: ${shown(name, found[name])} becomes ${shown(name, value)}.`);
        words.push(...tickWords(feed.status.value, wanted.tick_ms));
        /** @type {any} */
        let now = found;
        const done = await ask({ title: "Change the configuration?", text: words, confirm: "Change it",
          act: async () => { now = await change("PATCH", inNamespace(namespace, "config"), wanted); } });
        if (done === null) return;
        toast("The configuration was changed");
        put(panel.body, ...content({ ...found, ...wanted, ...now }));
        void feed.ask();
      },
    } },
    fields.map(({ name, label, unit, hint }, at) => h("div", { class: "field" },
      h("label", { for: `config-${name}` }, label, h("span", { class: "quiet" }, ` ${unit}`)), h("div", { class: "readable" }, inputs[at], readable[at]),
      h("small", { id: `hint-${name}` }, hint), name === "tick_ms" ? effect : null)),
    trouble, h("div", { class: "filter-buttons" }, save));
    read();
    return made;
  }

  return h("div", { class: "row halves" }, panel.root, danger(namespace, feed));
}

/**
 * Return the effects of a shorter tick on pending trees; nothing for a longer one, or an invalid one.
 *
 * @param {import("../data/types.js").Status | null} status
 * @param {number | undefined} tick ms
 */
export function tickWords(status, tick) {
  if (!status || !tick || !Number.isSafeInteger(tick) || tick < 1 || tick >= status.config.tick_ms) return [];
  const { now, then, due, pending } = withTick(status, tick);
  const update = status.config.refresh === "update";
  const span = ([least, most]) => `${duration(least)} to ${duration(most)}`;
  return [`A tree then expires ${span(then)} after its ${update ? "last" : "first"} row; now it is ${span(now)}.`,
    due ? `The next tick is then due at once: up to ${plural(due, "tree")} in the oldest bucket ${due === 1 ? "expires" : "expire"} with it.`
      : "No tree expires at once.",
    pending ? `Without ${update ? "further rows" : "acks"}, all ${plural(pending, "pending tree")} expire within ${duration(then[1])}.` : ""].filter(Boolean);
}

/** Return the number in an input, with or without thousands separators. */
function number(input) {
  return Number(input.value.replace(/[\s,_]/g, ""));
}

/** Return the panel of manual actions, some of which cannot be undone. */
function danger(namespace, feed) {
  const panel = new Panel({ title: "Manual actions" });
  const operator = may("operator", namespace);
  const admin = may("admin", namespace);
  const tick = h("button", { class: "button", type: "button", disabled: !operator, on: { click: async () => {
    let found;
    const done = await ask({ title: "Force a tick?",
      text: ["Every shard is rotated once, now. The trees in the oldest bucket expire, and their sources replay them."],
      confirm: "Force a tick", danger: true,
      act: async () => { found = await change("POST", inNamespace(namespace, "rotate"), {}); } });
    if (done === null) return;
    toast(typeof found?.expired === "number" ? `Ticked; ${plural(found.expired, "tree")} expired` : "Ticked");
    void feed.ask();
  } } }, "Force a tick");
  const drop = h("button", { class: "button danger", type: "button", disabled: !admin, on: { click: async () => {
    const done = await ask({ title: "Drop this namespace?",
      text: ["Its pending trees, its untaken verdicts and its configuration are deleted. "
        + "Sources are not notified. This cannot be undone."],
      typed: namespace, confirm: "Drop it", danger: true,
      act: async () => {
        await change("DELETE", `${inNamespace(namespace)}?confirm=${encodeURIComponent(namespace)}`);
        forget(namespace);
      } });
    if (done === null) return;
    toast(`${namespace} was dropped`);
    go(href([]));
  } } }, "Drop the namespace");
  put(panel.body,
    action("Force a tick", "Expires the trees of the next tick now; the rotator continues as usual.", tick,
      operator ? "" : "This needs the role operator."),
    action("Drop the namespace", "Deletes it with all its trees and verdicts. Producers then get errors.", drop,
      admin ? "" : "This needs the role admin."));
  return panel.root;
}

function action(title, text, button, needed) {
  return h("div", { class: "action" }, h("div", {}, h("h3", {}, title), h("p", {}, text),
    needed ? h("p", { class: "quiet" }, needed) : null), button);
}
