/**
 * The place in the page. It is the part of the URL after the `#`, so the page is one file, and search
 * terms such as source ids are in no server log.
 *
 *     #/                                  namespaces
 *     #/ns/orders                         one namespace, live
 *     #/ns/orders/trees?state=failed      its trees, filtered
 *     #/ns/orders/trees/4711              one tree
 *     #/ns/orders/blocks/815              one block
 *     #/ns/orders/config                  its configuration
 *     #/audit                             the audit log
 *     #/search?q=order-17&ns=orders       a search, of one namespace or of all
 *     #/runbook/rotator                   what a finding means, and what to do
 */

/** @typedef {{parts: string[], query: Record<string, string>}} Place */

/** @returns {Place} */
export function here() {
  const [path, search = ""] = splitOnce(location.hash.replace(/^#/, ""), "?");
  return {
    parts: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

/**
 * @param {string[]} parts
 * @param {Record<string, any>} [query] empty values are left out
 */
export function href(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, String(value));
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * @param {string} to
 * @param {boolean} [replace] add no entry to the history
 */
export function go(to, replace = false) {
  if (replace) location.replace(to);
  else location.hash = to;
}

function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
