/**
 * Elements without markup: text from the service becomes a text node or an attribute, never HTML.
 * The page's policy (`require-trusted-types-for 'script'`) refuses anything else.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 *
 * `props`: `class`, `on` (listeners by event), `data` (data-* attributes), booleans and `value` as
 * properties, everything else as attributes; null and false leave an attribute out.
 *
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Child | Child[])} children
 * @returns {any} an HTMLElement of this tag
 */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * Make an SVG element; see `h`.
 *
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/**
 * Replace all children of a node.
 *
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function put(parent, ...children) {
  parent.replaceChildren(...nodes(children));
}

/**
 * Set the text of a node, unless it is the same.
 *
 * @param {Element} node
 * @param {string | number} text
 */
export function say(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/**
 * Return an element for a text of another program: an id, a label, a reason. It is isolated, so marks
 * of direction in it do not affect the text around it. CSS cuts long texts.
 *
 * @param {string} text
 * @param {string} [kind] more classes
 */
export function foreign(text, kind = "") {
  return h("bdi", { class: `foreign ${kind}`, title: text, dir: "auto" }, text);
}

/**
 * Return an icon of the sprite in the page; screen readers skip it.
 *
 * @param {string} name
 */
export function icon(name) {
  return s("svg", { class: "icon", "aria-hidden": "true", focusable: "false" },
    s("use", { href: `#icon-${name}` }));
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(node.dataset, value);
    } else if (name === "class") {
      node.setAttribute("class", value);
    } else if (name === "value") {
      node.value = value;
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}
