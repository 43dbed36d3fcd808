/** What each finding means, and what to do: the same text as docs/reference/doctor.md. */

import { h } from "../core/dom.js";
import { href } from "../core/router.js";
import { RUNBOOK } from "../data/runbook.js";
import { Panel } from "../ui/panel.js";

/**
 * @param {import("../core/scope.js").Scope} scope
 * @param {import("../core/router.js").Place} place
 */
export function runbook(scope, { parts }) {
  const wanted = parts[1] || "";
  const chosen = RUNBOOK.filter(({ id }) => id === wanted);
  const panels = [...chosen, ...RUNBOOK.filter(({ id }) => id !== wanted)].map(({ id, effect, fix }) => {
    const panel = new Panel({ title: id, kind: id === wanted ? "chosen" : "" });
    panel.body.append(h("dl", { class: "facts wide" },
      h("div", {}, h("dt", {}, "Meaning"), h("dd", {}, code(effect))),
      h("div", {}, h("dt", {}, "What to do"), h("dd", {}, code(fix)))));
    return panel.root;
  });
  return h("div", { class: "page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: "-1" }, "Runbook"),
      h("p", { class: "page-note" }, wanted && !chosen.length ? `There is no finding named ${wanted}. These are all:`
        : "The findings of the doctor, with the one that you came from first. The same table is in docs/reference/doctor.md.")),
    h("a", { class: "button", href: href([]) }, "All namespaces")),
    h("div", { class: "live" }, panels));
}

/** Return a text with its code between backticks. @param {string} text */
function code(text) {
  return text.split("`").map((part, at) => at % 2 ? h("code", { class: "command" }, part) : part);
}
