/** The search box: in the header of every page, and on the page of the search. */

import { h, icon } from "../core/dom.js";
import { go, href } from "../core/router.js";

/**
 * @param {string | (() => string)} namespace the one to search; "" for all
 * @param {string} value
 * @param {string} id of the input
 */
export function searchForm(namespace, value, id) {
  const input = h("input", { class: "input", id, type: "search", name: "q", value, maxlength: 255, autocomplete: "off", spellcheck: "false",
    autocapitalize: "off", placeholder: "Source id, anchor or message id", "aria-label": "Search for a source id, an anchor or a message id" });
  return h("form", { class: "search", role: "search", "aria-label": id === "search" ? "Search" : "Search again", on: { submit: (event) => {
    event.preventDefault();
    const ns = typeof namespace === "function" ? namespace() : namespace;
    if (input.value.trim()) go(href(["search"], { q: input.value.trim(), ns }));
  } } }, icon("search"), input);
}
