/**
 * Ids of other programs in lists: a long one is cut in the middle, because ids mostly differ at their
 * end. The text in the page is complete, so it can be searched, copied, and read aloud.
 */

import { foreign, h } from "../core/dom.js";

/** Width of the end of an id that stays visible, in em. */
const TAIL = 7.5;
/** A shorter id fits into every list, in em. */
const SHORT = 12;
const letters = new Intl.Segmenter();

/**
 * Return an element for an id, isolated like `foreign`.
 *
 * @param {string} text
 */
export function idText(text) {
  const all = Array.from(letters.segment(text), ({ segment }) => segment);
  if (widthOf(all) <= SHORT) return foreign(text);
  let begin = all.length;
  while (begin > 0 && widthOf(all.slice(begin - 1)) <= TAIL) begin -= 1;
  const tail = all.slice(begin);
  const head = h("span", { class: "id-head" }, all.slice(0, begin).join(""));
  head.style.maxWidth = `calc(100% - ${widthOf(tail).toFixed(1)}em)`;
  return h("bdi", { class: "foreign id", title: text, dir: "auto" }, head, h("span", { class: "id-tail" }, tail.join("")));
}

/** Return about the width of some letters, in em; rather too much. @param {string[]} some */
function widthOf(some) {
  return some.reduce((sum, each) => sum + (/^[a-z0-9 _.:/-]$/.test(each) ? 0.62 : /^[\x20-\x7e]$/.test(each) ? 0.85 : 1.4), 0);
}
