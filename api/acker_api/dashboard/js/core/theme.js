/** Dark, light, or as the system has it. */

import { Signal } from "./signal.js";

const KEY = "acker.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Told after every change: charts draw anew. @type {Signal<"light" | "dark">} */
export const theme = new Signal("light");

/** Apply what was chosen last, or what the system has. */
export function start() {
  dark.addEventListener("change", apply);
  window.addEventListener("storage", (event) => event.key === KEY && apply());
  apply();
}

/** Change to the other one, and remember it unless it is the system's own. */
export function turn() {
  const wanted = theme.value === "dark" ? "light" : "dark";
  try {
    if (wanted === system()) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, wanted);
  } catch {
    // Storage may be off: the choice then ends with the page.
  }
  show(wanted);
}

function apply() {
  show(chosen() || system());
}

function show(wanted) {
  document.documentElement.dataset.theme = wanted;
  theme.tell(wanted);
}

function chosen() {
  try {
    const found = localStorage.getItem(KEY);
    return found === "dark" || found === "light" ? found : "";
  } catch {
    return "";
  }
}

function system() {
  return dark.matches ? "dark" : "light";
}

/**
 * A colour of the theme, for a canvas.
 *
 * @param {string} name of a custom property, "--ok"
 */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
