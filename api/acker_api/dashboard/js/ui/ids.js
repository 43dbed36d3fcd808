/**
 * Ids of other programs in lists: a long one is cut in the middle, because ids mostly differ at their
 * end. The text in the page is complete, so it can be searched and copied.
 */

import { foreign, h } from "../core/dom.js";

/** Characters at the end of an id that stay visible. */
const TAIL = 12;
/** A shorter id fits into every list. */
const SHORT = 20;
const letters = new Intl.Segmenter();

/**
 * Return an element for an id, isolated like `foreign`.
 *
 * @param {string} text
 */
export function idText(text) {
  if (text.length <= SHORT) return foreign(text);
  const all = Array.from(letters.segment(text), ({ segment }) => segment);
  const tail = all.slice(-TAIL).join("");
  return h("bdi", { class: "foreign id", title: text, dir: "auto" },
    h("span", { class: "id-head" }, all.slice(0, -TAIL).join("")), h("span", { class: "id-tail" }, tail));
}
