/** A namespace: its name, how it is, and its parts. */

import { h, icon, put, say } from "../core/dom.js";
import { connection } from "../core/connection.js";
import { href } from "../core/router.js";
import { diagnose } from "../data/diagnose.js";
import { Feed } from "../data/feed.js";
import { chip, empty } from "../ui/panel.js";
import { config } from "./config.js";
import { live } from "./live.js";
import { tree } from "./tree.js";
import { trees } from "./trees.js";

const TABS = /** @type {[string, string][]} */ ([["", "Live"], ["trees", "Trees"], ["config", "Configuration"]]);

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function namespace(scope, place) {
  const [, name, tab = "", anchor] = place.parts;
  const feed = new Feed(name, scope);
  const health = h("div", { class: "health" }, h("span", { class: "bone" }));
  /** For who cannot see it: what is wrong, when it changes. */
  const alarms = h("p", { class: "only-read", id: "alarms", role: "status" });
  const content = h("div", { class: "content" });
  const draw = () => {
    if (tab === "trees" && anchor) return tree(scope, feed, anchor);
    if (tab === "trees") return trees(scope, feed, place.query);
    return tab === "config" ? config(scope, feed) : live(scope, feed);
  };
  put(content, draw());

  let said = "";
  let gone = false;
  feed.status.hear(scope, (status) => {
    if (!status || away(connection.value.state)) return;
    // It is there after all: begin anew.
    if (gone) return void window.dispatchEvent(new HashChangeEvent("hashchange"));
    const findings = diagnose(status);
    const found = JSON.stringify(findings.map(({ level, title }) => [level, title.replace(/[\d.,]+ \w+/g, "")]));
    const parts = health.querySelectorAll(".finding-text");
    if (said === found) {
      // Only figures have changed: what is focused or read aloud stays.
      findings.forEach((each, at) => parts[at] && put(parts[at], ...words(each)));
      return;
    }
    said = found;
    say(alarms, findings.filter((each) => each.level !== "info").map((each) => each.title).join(". "));
    put(health, findings.length ? h("ul", { class: "findings", role: "list" }, findings.map((each) =>
      h("li", { class: `finding ${each.level}` }, icon(each.level === "info" ? "info" : "alert"),
        h("div", { class: "finding-text" }, words(each)))))
      : h("p", { class: "finding ok" }, icon("check"), h("span", {},
        h("strong", {}, "Healthy."), " The rotator is on time, and there is room below the high-water mark.")));
  });
  feed.error.hear(scope, (error) => {
    if (error?.code !== "namespace-not-found" || scope.over) return;
    gone = true;
    put(health, chip("over", "not there"));
    put(content, empty("inbox", "There is no such namespace", error.message,
      h("a", { class: "button", href: href([]) }, "All namespaces")));
  });
  const turned = ({ state }) => {
    root.classList.toggle("stale", away(state));
    if (!away(state)) return;
    said = "";
    put(health, h("p", { class: "finding over" }, icon("alert"), h("span", {},
      h("strong", {}, "Not known."), " What is below is how it was; nobody knows how it is.")));
  };
  connection.hear(scope, turned);

  const root = h("div", { class: "page" },
    h("div", { class: "page-head" },
      h("div", {},
        h("nav", { class: "crumbs", "aria-label": "Where you are" },
          h("a", { href: href([]) }, "Namespaces"), icon("right"), h("span", { "aria-current": "page" }, h("bdi", {}, name))),
        h("h1", { tabindex: "-1" }, h("bdi", {}, name))),
      h("nav", { class: "tabs", "aria-label": "Parts of the namespace" }, TABS.map(([part, title]) =>
        h("a", { href: href(["ns", name, ...(part ? [part] : [])]), "aria-current": part === tab ? "page" : null }, title)))),
    alarms, health, content);
  turned(connection.value);
  return root;
}

/** @param {string} state of the connection */
function away(state) {
  return state === "service" || state === "redis";
}

/** @param {import("../data/diagnose.js").Finding} finding */
function words({ title, detail }) {
  return [h("strong", {}, title), h("p", {}, detail)];
}
