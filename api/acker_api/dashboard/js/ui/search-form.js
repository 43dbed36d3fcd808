/** The search box in the header of every page. */

import { h, icon } from "../core/dom.js";
import { go, here, href } from "../core/router.js";

/** Return the box. On the page of a namespace it searches there, elsewhere in all namespaces. */
export function searchForm() {
  const input = h("input", { class: "input", id: "search", type: "search", name: "q", maxlength: 255, autocomplete: "off", spellcheck: "false",
    autocapitalize: "off", placeholder: "Source id, anchor or message id", "aria-label": "Search" });
  const shown = () => {
    const { parts, query } = here();
    if (parts[0] === "search") input.value = query.q || "";
  };
  window.addEventListener("hashchange", shown);
  shown();
  return h("form", { class: "search", role: "search", "aria-label": "Search", on: { submit: (event) => {
    event.preventDefault();
    const { parts, query } = here();
    const ns = parts[0] === "ns" ? parts[1] : parts[0] === "search" ? query.ns : "";
    if (input.value.trim()) go(href(["search"], { q: input.value.trim(), ns }));
  } } }, icon("search"), input);
}
