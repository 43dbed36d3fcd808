/** The user of the page, and the user's rights. */

import { LOGIN, change, get, toLogin } from "../core/api.js";
import { Signal } from "../core/signal.js";

const RANKS = ["viewer", "operator", "admin"];

/**
 * @typedef {object} Session
 * @property {string} role viewer, operator or admin
 * @property {string[] | null} namespaces only these, `shop-*` for a prefix; null: all
 * @property {string} who
 * @property {boolean} needed whether the service requires a token
 */

/** @type {Signal<Session>} */
export const session = new Signal({ role: "viewer", namespaces: null, who: "", needed: false });

/** Load the session, or go to the login page. Without an answer, the page may only read. */
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
 * Return whether the session may do something; the service makes the final decision.
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
  location.assign(LOGIN);
}
