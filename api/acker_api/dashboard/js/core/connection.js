/**
 * Whether what is shown is alive. Feeds tell it what they got; the banner tells people.
 */

import { Signal } from "./signal.js";

/**
 * @typedef {object} Connection
 * @property {"starting" | "ok" | "quiet" | "service" | "redis"} state what is away, if anything is;
 *   quiet: news are late, and nobody knows why yet
 * @property {string} detail what was said of it
 * @property {number} since when the state began, in ms
 */

/** @type {Signal<Connection>} */
export const connection = new Signal({ state: "starting", detail: "", since: Date.now() });

/** How figures come: by events, by asking, or not at all. @type {Signal<"" | "events" | "polling">} */
export const mode = new Signal("");

/** Figures have come. */
export function alive() {
  turn("ok", "");
}

/** Figures are late. */
export function quiet() {
  if (connection.value.state === "ok") turn("quiet", "");
}

/**
 * Figures have not come.
 *
 * @param {import("./api.js").ApiError} error
 */
export function failed(error) {
  if (error.serviceAway) turn("service", error.message);
  else if (error.redisAway) turn("redis", error.message);
  else if (error.status === 404) turn("ok", "");
  else turn("quiet", ""); // somebody answers, and has no figures
}

function turn(state, detail) {
  const now = connection.value;
  if (now.state !== state) connection.set({ state, detail, since: Date.now() });
  else if (now.detail !== detail) connection.set({ ...now, detail });
}
