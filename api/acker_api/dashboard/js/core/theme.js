/** The theme: dark, light, or the system's. */

import { Signal } from "./signal.js";

const KEY = "acker.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** The present theme; charts listen and redraw. @type {Signal<"light" | "dark">} */
export const theme = new Signal("light");

/** Apply the theme that was chosen last, or the system's. */
export function start() {
  dark.addEventListener("change", apply);
  window.addEventListener("storage", (event) => event.key === KEY && apply());
  apply();
}

/** Switch to the other theme, and store it unless it is the system's. */
export function turn() {
  const wanted = theme.value === "dark" ? "light" : "dark";
  try {
    if (wanted === system()) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, wanted);
  } catch {
    // Storage may be off: then the choice lasts until the page is closed.
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
 * Return a colour of the theme, for a canvas.
 *
 * @param {string} name of a custom property, "--ok"
 */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
