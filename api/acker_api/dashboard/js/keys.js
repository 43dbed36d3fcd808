/**
 * Keyboard shortcuts of one letter. They can be switched off, for people whose speech input types
 * letters (WCAG 2.1.4).
 */

import { h } from "./core/dom.js";
import { go, here, href } from "./core/router.js";
import { turn } from "./core/theme.js";
import { sheet } from "./ui/dialog.js";

const KEY = "acker.keys";

/** @type {[string, string, () => void][]} */
const KEYS = [
  ["/", "Search for a source id, an anchor or a message id", () => focus(document.getElementById("search"))],
  ["j", "Next row", () => step(1)],
  ["k", "Previous row", () => step(-1)],
  ["n", "All namespaces", () => go(href([]))],
  ["a", "Audit log", () => go(href(["audit"]))],
  ["l", "Of this namespace: Live", () => tab()],
  ["t", "Of this namespace: Trees", () => tab("trees")],
  ["c", "Of this namespace: Configuration", () => tab("config")],
  ["d", "Dark or light colours", turn],
  ["?", "This list", () => void help()],
];

/** Begin to listen. */
export function start() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const [key, , act] = KEYS.find(([name]) => name === event.key) || [];
    if (!act || (off() && key !== "?")) return;
    event.preventDefault();
    act();
  });
}

/** Show all shortcuts. */
export async function help() {
  const box = h("input", { type: "checkbox", id: "keys-on" });
  box.checked = !off();
  box.addEventListener("change", () => {
    try {
      if (box.checked) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, "off");
    } catch {
      // Storage may be off: then the shortcuts stay on.
    }
  });
  await sheet("Keyboard shortcuts", h("dl", { class: "keys" }, KEYS.map(([key, words]) =>
    h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)))),
  h("label", { class: "check" }, box, "Shortcuts of one letter are on"));
}

function off() {
  try {
    return localStorage.getItem(KEY) === "off";
  } catch {
    return false;
  }
}

/** @param {any} target */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

function tab(part = "") {
  const [kind, name] = here().parts;
  if (kind === "ns" && name) go(href(["ns", name, ...(part ? [part] : [])]));
}

/** Focus the next row, or the first. @param {number} by */
function step(by) {
  const rows = [...document.querySelectorAll("main tbody a, main .card h3 a")].filter((each) => each.getClientRects().length);
  const at = rows.indexOf(/** @type {any} */ (document.activeElement));
  focus(rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by))]);
}

/** @param {any} element */
function focus(element) {
  element?.focus();
  element?.select?.();
}
