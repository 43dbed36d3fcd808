/** Who looks at the page, and what they may do. */

import { change, get, toLogin } from "../core/api.js";
import { Signal } from "../core/signal.js";

const RANKS = ["viewer", "operator", "admin"];

/**
 * @typedef {object} Session
 * @property {string} role viewer, operator or admin
 * @property {string[] | null} namespaces for these only, `shop-*` for all that begin so; null: for all
 * @property {string} who
 * @property {boolean} needed whether a token is needed at all
 */

/** @type {Signal<Session>} */
export const session = new Signal({ role: "viewer", namespaces: null, who: "", needed: false });

/** Ask who we are, or be asked. A service that cannot tell lets us look, and no more. */
export async function load() {
  const found = await get("/session");
  if (found.needed && !found.role) toLogin();
  session.tell({
    role: found.role || "viewer",
    namespaces: Array.isArray(found.namespaces) ? found.namespaces : null,
    who: found.who || "",
    needed: Boolean(found.needed),
  });
}

/**
 * Whether the session may do something; the service decides in the end.
 *
 * @param {"viewer" | "operator" | "admin"} role
 * @param {string} [namespace]
 */
export function may(role, namespace) {
  const { role: has, namespaces } = session.value;
  const here = !namespace || !namespaces || namespaces.some((name) => name.endsWith("*")
    ? namespace.startsWith(name.slice(0, -1)) : name === namespace);
  return here && RANKS.indexOf(has) >= RANKS.indexOf(role);
}

/** End the session, and show the login page. */
export async function leave() {
  await change("DELETE", "/session");
  location.assign("/login");
}
