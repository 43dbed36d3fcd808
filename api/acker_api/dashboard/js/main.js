/** The start of the page: it shows one view at a time, by the part of the URL after the `#`. */

import { h, put } from "./core/dom.js";
import { here, href } from "./core/router.js";
import { Scope } from "./core/scope.js";
import * as theme from "./core/theme.js";
import { load as loadSession } from "./data/session.js";
import * as keys from "./keys.js";
import * as shell from "./shell.js";
import { empty } from "./ui/panel.js";
import { audit } from "./views/audit.js";
import { namespace } from "./views/namespace.js";
import { overview } from "./views/overview.js";
import { runbook } from "./views/runbook.js";
import { search } from "./views/search.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let scope = new Scope();
let first = true;

function show() {
  scope.close();
  scope = new Scope();
  const place = here();
  const [kind] = place.parts;
  try {
    put(main, view(kind, place));
  } catch (error) {
    console.error(error);
    put(main, empty("alert", "This page could not be shown", String(error)));
  }
  title(place.parts);
  // A view that requests nothing does not know the state of the connection.
  document.body.classList.toggle("nowhere", !["ns", "audit", undefined].includes(kind)
    && !(kind === "search" && place.query.ns));
  for (const link of document.querySelectorAll("#nav a")) {
    const its = link.getAttribute("href") === "#/audit" ? kind === "audit" : kind !== "audit";
    if (its) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!first) {
    window.scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
  first = false;
}

function view(kind, place) {
  if (!kind) return overview(scope, place);
  if (kind === "ns" && place.parts[1]) return namespace(scope, place);
  if (kind === "audit") return audit(scope, place);
  if (kind === "search") return search(scope, place);
  if (kind === "runbook") return runbook(scope, place);
  return h("div", { class: "page" }, h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Not found")),
    empty("inbox", "No such page", "The address may be incomplete, or of another version of this page.",
      h("a", { class: "button", href: href([]) }, "All namespaces")));
}

function title(parts) {
  const name = parts[0] === "ns" ? parts.slice(1).join(" / ") : parts[0] || "namespaces";
  document.title = `${name} · acker`;
}

theme.start();
shell.start();
keys.start();
window.addEventListener("hashchange", show);
// The session is loaded before any view offers an action; without an answer, views only read.
loadSession().catch(() => undefined).finally(show);
