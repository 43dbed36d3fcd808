/** Calls of the REST API. */

/** The path of the service, "/" or that of a proxy: this module is in its folder static/VERSION/js/core. */
export const ROOT = new URL("../../../../", import.meta.url).pathname;
const BASE = `${ROOT}api/v1`;
const PATIENCE_MS = 5000;

/** A problem that the service answered (RFC 9457). */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {{type?: string, title?: string, detail?: string,
   *   errors?: {where: string, what: string}[]}} problem
   */
  constructor(status, problem) {
    const code = (problem.type || "").replace("urn:acker-redis:problem:", "");
    // The reason of an outage names sockets; the log of the service has it.
    super((code === "redis-unavailable" ? "Redis does not answer the service" : problem.detail) || problem.title
      || `the service answered ${status}`);
    this.status = status;
    this.title = problem.title || (status ? `Status ${status}` : "The service does not answer");
    this.code = code;
    this.errors = problem.errors || [];
  }

  /** There was no answer: the service or the network is unavailable. */
  get serviceAway() {
    return this.status === 0;
  }

  /** The service answers, but Redis does not. */
  get redisAway() {
    return this.code === "redis-unavailable";
  }

  /** The answer fails because a server is unavailable, which the banner reports. */
  get away() {
    return this.serviceAway || this.redisAway;
  }

  /** The token does not allow it. */
  get forbidden() {
    return this.status === 403;
  }

  /** The service has no such route: it is older than this page. */
  get notOffered() {
    return (this.status === 404 && this.code === "not-found") || this.status === 405
      || this.status === 501;
  }
}

/**
 * Return the path of a namespace, or of a part of it.
 *
 * @param {string} namespace
 * @param {...string} parts
 */
export function inNamespace(namespace, ...parts) {
  return ["/namespaces", namespace, ...parts].map((part, at) => at ? encodeURIComponent(part) : part)
    .join("/");
}

/** @param {string} path */
export function address(path) {
  return BASE + path;
}

/**
 * @param {string} path below /api/v1
 * @param {{query?: Record<string, any>, signal?: AbortSignal, patience?: number}} [options]
 *   `query`: empty values are left out
 */
export function get(path, { query = {}, signal, patience = PATIENCE_MS } = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== "" && value !== null && value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return send("GET", text ? `${path}?${text}` : path, undefined, signal, patience);
}

/**
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 */
export function change(method, path, body, signal) {
  return send(method, path, body, signal, 30_000);
}

async function send(method, path, body, signal, patience) {
  const limit = AbortSignal.timeout(patience);
  let response;
  let text;
  try {
    response = await fetch(BASE + path, {
      method,
      credentials: "same-origin",
      cache: "no-store",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, {
      title: "The service does not answer",
      detail: limit.aborted ? `no answer within ${patience / 1000} s` : "the service cannot be reached",
    });
  }
  if (response.ok) return text ? JSON.parse(text) : null;
  if (response.status === 401) toLogin();
  throw new ApiError(response.status, problem(text, response.statusText));
}

/** The login page. */
export const LOGIN = `${ROOT}login`;
const PLACE = "acker.place";

/** Go to the login page, and return to the present place: the tab stores it, and no URL contains it. */
export function toLogin() {
  if (location.pathname === LOGIN) return;
  try {
    sessionStorage.setItem(PLACE, location.hash);
  } catch {
    // Storage is off: the login returns to the start.
  }
  location.assign(LOGIN);
}

/** Return the place before the login page. */
export function fromLogin() {
  try {
    const place = sessionStorage.getItem(PLACE) || "";
    sessionStorage.removeItem(PLACE);
    return ROOT + (place.startsWith("#/") ? place : "");
  } catch {
    return ROOT;
  }
}

function problem(text, words) {
  try {
    const found = JSON.parse(text);
    if (found && typeof found === "object") return found;
  } catch {
    // A proxy may answer in HTML.
  }
  return { title: words || "The request was refused" };
}
