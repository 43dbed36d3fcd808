/**
 * The state of the connection: feeds report their results here, and the banner shows it.
 */

import { Signal } from "./signal.js";

/**
 * @typedef {object} Connection
 * @property {"starting" | "ok" | "quiet" | "service" | "redis"} state the unavailable server, if any;
 *   quiet: updates are late for an unknown reason
 * @property {number} since begin of the state, in ms
 */

/** @type {Signal<Connection>} */
export const connection = new Signal({ state: "starting", since: Date.now() });

/** How updates arrive: by events, by polling, or not at all. @type {Signal<"" | "events" | "polling">} */
export const mode = new Signal("");

/** Note that an update has arrived. */
export function alive() {
  turn("ok");
}

/** Note that an update is late. */
export function quiet() {
  if (connection.value.state === "ok") turn("quiet");
}

/**
 * Note that an update has failed.
 *
 * @param {import("./api.js").ApiError} error
 */
export function failed(error) {
  if (error.serviceAway) turn("service");
  else if (error.redisAway) turn("redis");
  else if (error.status === 404) turn("ok");
  else turn("quiet"); // a server answers, but without figures
}

function turn(state) {
  if (connection.value.state !== state) connection.set({ state, since: Date.now() });
}
