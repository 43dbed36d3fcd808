/** All namespaces, page by page, with their states. */

import { ApiError, get, inNamespace } from "../core/api.js";
import { alive, failed, mode } from "../core/connection.js";
import { Signal } from "../core/signal.js";
import { Events } from "./events.js";

/** @typedef {import("./types.js").Status} Status */

const PAGE = 24;
const AT_ONCE = 4;
const POLL_MS = 800;
const SLOW_MS = 10_000;
/** Names change rarely. */
const NAMES_MS = 5000;
const TRACE = 90;

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {Status | null} status the last one that was read
 * @property {ApiError | null} error why it cannot be read now
 * @property {{t: number, open: number}[]} trace
 * @property {{t: number, counters: Record<string, number>}[]} readings of the last seconds, for rates
 */

export class Overview {
  /**
   * @param {string} after only names after this one; "" for the first page
   * @param {import("../core/scope.js").Scope} scope
   */
  constructor(after, scope) {
    this.after = after;
    this.scope = scope;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    this.total = 0;
    /** @type {string | null} */
    this.next = null;
    this.namesAt = 0;
    this.readAt = 0;
    /** Notified after every round. @type {Signal<{error: ApiError | null, rows: Row[]}>} */
    this.news = new Signal({ error: /** @type {ApiError | null} */ (null), rows: /** @type {Row[]} */ ([]) });
    this.events = new Events("/events", scope, this.#handlers());
    scope.repeat(() => this.#round());
  }

  /**
   * Events have the figures that change often; everything else is polled at a longer interval.
   *
   * @returns {Record<string, (data: any) => void>}
   */
  #handlers() {
    return {
      namespaces: ({ namespaces, total }) => {
        if (total !== this.total) this.namesAt = this.readAt = 0; // namespaces were created or dropped
        for (const told of namespaces) this.#hear(told);
        this.events.heard();
        alive();
        mode.set("events");
        this.news.tell({ error: null, rows: [...this.rows.values()] });
      },
      problem: (problem) => {
        const error = new ApiError(problem.status || 503, problem);
        this.events.heard(); // the event repeats every second, so no poll is needed
        failed(error);
        for (const row of this.rows.values()) row.error = error;
        this.news.tell({ error, rows: [...this.rows.values()] });
      },
    };
  }

  #hear({ name, up, now_ms, ...told }) {
    const row = this.rows.get(name);
    if (!row?.status) return;
    if (!up) {
      this.readAt = 0; // a poll gets the reason
      return;
    }
    const findings = merged(told.findings, row.status.findings);
    this.#note(row, { ...row.status, ...told, findings, shards: [{ ...row.status.shards[0], now_ms }, ...row.status.shards.slice(1)] });
  }

  async #round() {
    if (this.events.live && Date.now() - this.readAt < SLOW_MS) return POLL_MS;
    this.readAt = Date.now();
    /** @type {ApiError | null} */
    let error = null;
    try {
      if (Date.now() - this.namesAt > NAMES_MS || this.news.value.error) await this.#names();
      await this.#read();
      const errors = [...this.rows.values()].map((row) => row.error);
      // If one can be read, the service and Redis are available.
      const away = errors.length > 0 && errors.every(Boolean) ? errors.find(
        (each) => each && (each.redisAway || each.serviceAway)) : null;
      error = away || null;
    } catch (found) {
      error = found instanceof ApiError ? found : new ApiError(500, { detail: String(found) });
    }
    if (this.scope.over) return SLOW_MS;
    if (error) failed(error);
    else alive();
    if (!error && !this.events.recent) mode.set("polling");
    this.news.tell({ error, rows: [...this.rows.values()] });
    // With many namespaces, polls are less frequent: an open page costs the same.
    return document.hidden ? SLOW_MS : POLL_MS * Math.max(1, Math.ceil(this.rows.size / 8));
  }

  async #names() {
    const query = { after: this.after, limit: PAGE };
    const found = await get("/namespaces", { query, signal: this.scope.signal, patience: 4000 });
    this.total = found.total;
    this.next = found.next;
    this.namesAt = Date.now();
    const names = found.namespaces.map((each) => each.name);
    this.rows = new Map(names.map((name) => [name, this.rows.get(name) || fresh(name)]));
  }

  async #read() {
    const waiting = [...this.rows.values()];
    const worker = async () => {
      for (let row = waiting.shift(); row; row = waiting.shift()) await this.#one(row);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  /** @param {Row} row @param {Status} status */
  #note(row, status) {
    const t = status.shards[0].now_ms;
    row.status = status;
    row.error = null;
    row.trace = [...row.trace, { t, open: status.open }].slice(-TRACE);
    row.readings = [...row.readings, { t, counters: status.counters }].slice(-6);
  }

  /** @param {Row} row */
  async #one(row) {
    try {
      const signal = this.scope.signal;
      const status = await get(inNamespace(row.name), { signal, patience: 4000 });
      // Events judge by separate readings: findings of both in turn would flicker.
      if (this.events.live && row.status) status.findings = merged(row.status.findings, status.findings);
      this.#note(row, status);
    } catch (error) {
      if (this.scope.over) throw error;
      row.error = error instanceof ApiError ? error : new ApiError(500, { detail: String(error) });
    }
  }
}

const NACKS = ["failed", "expired", "overflow", "conflict"];

/**
 * Return the verdicts per second over the last readings; of a single one, the rates of the service, or null.
 *
 * @param {Row} row
 * @returns {{acked: number, nacked: number} | null}
 */
export function rates({ readings, status }) {
  const [first, last] = [readings[0], readings.at(-1)];
  if (!first || !last || last.t <= first.t) {
    const told = status?.rates;
    return told ? { acked: told.acked || 0, nacked: NACKS.reduce((sum, name) => sum + (told[name] || 0), 0) } : null;
  }
  const per = (names) => Math.max(0, names.reduce(
    (sum, name) => sum + (last.counters[name] || 0) - (first.counters[name] || 0), 0))
    / ((last.t - first.t) / 1000);
  return { acked: per(["acked"]), nacked: per(NACKS) };
}

/**
 * Return the findings of events, with the finding about the oldest tree, which only polls have.
 *
 * @param {import("./types.js").Finding[]} told
 * @param {import("./types.js").Finding[]} asked
 */
function merged(told, asked) {
  return [...told.filter(({ id }) => id !== "oldest"), ...asked.filter(({ id }) => id === "oldest")];
}

/** @returns {Row} */
function fresh(name) {
  return { name, status: null, error: null, trace: [], readings: [] };
}
