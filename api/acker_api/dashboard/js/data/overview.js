/**
 * The health of all namespaces, judged by the service, the worst first. Namespaces that were there and
 * are gone are remembered while the tab is open.
 */

import { ApiError, get } from "../core/api.js";
import { alive, failed, mode } from "../core/connection.js";
import { Signal } from "../core/signal.js";
import { Events } from "./events.js";

/** @typedef {import("./types.js").Health} Health */

const POLL_MS = 800;
const HIDDEN_MS = 10_000;
const TRACE = 90;
const READINGS = 6;
/** A namespace that only a search has found is forgotten after this time. */
const FOUND_MS = 15_000;
/** A namespace that is still listed after this time was created again. */
const DROPPED_MS = 60_000;

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {Health | null} told the last answer that had figures
 * @property {ApiError | null} error why it cannot be read now
 * @property {number} gone when it was found to be gone, in ms; 0 while it exists
 * @property {number} heardAt
 * @property {boolean} broken the next reading comes after an outage
 * @property {{t: number, open: number | null}[]} trace null is a gap
 * @property {{t: number, counters: Record<string, number>}[]} readings of the last seconds, for rates
 */

/** @typedef {{total: number, every_ms: number, counts: Record<"error" | "warning" | "ok", number>}} Totals */

/** @typedef {{error: ApiError | null, rows: Row[], totals: Totals | null, at: number}} News */

/** Rows are kept while the user changes pages. @type {Map<string, Row>} */
const rows = new Map();

/** Namespaces whose absence the user knows, and since when. @type {Map<string, number>} */
const known = new Map();

/** Forget a namespace: the user of this page has dropped it, or has read that it is gone. @param {string} name */
export function forget(name) {
  rows.delete(name);
  known.set(name, Date.now());
}

export class Overview {
  /** @param {import("../core/scope.js").Scope} scope */
  constructor(scope) {
    this.scope = scope;
    /** The name that is searched, or a part of it. */
    this.text = "";
    /** Whether the service has more namespaces than it lists. */
    this.cut = false;
    /** Notified after every answer. @type {Signal<News>} */
    this.news = new Signal({ error: null, rows: [], totals: null, at: 0 });
    this.events = new Events("", scope, this.#handlers());
    scope.repeat(() => this.#round());
  }

  /** @param {string} text a part of a name */
  search(text) {
    this.text = text;
    if (this.cut && text) void this.#find();
  }

  /** Report the rows again: one was forgotten. */
  again() {
    this.news.tell({ ...this.news.value, rows: [...rows.values()] });
  }

  /** @returns {Record<string, (data: any) => void>} */
  #handlers() {
    return {
      namespaces: (told) => {
        this.events.heard(told.every_ms);
        this.#take(told, "events");
      },
      problem: (problem) => {
        this.events.heard(); // the event repeats every second, so no poll is needed
        this.#fail(new ApiError(problem.status || 503, problem));
      },
    };
  }

  async #round() {
    let pause = POLL_MS;
    if (!this.events.live) {
      try {
        const told = await this.#ask({});
        this.#take(told, this.events.recent ? "events" : "polling");
        pause = Math.max(pause, told.every_ms);
      } catch (error) {
        if (!this.scope.over) this.#fail(error);
      }
    } else if (this.cut && this.text) await this.#find();
    return document.hidden ? HIDDEN_MS : pause;
  }

  /** @param {Record<string, any>} query */
  #ask(query) {
    return get("/overview", { query, signal: this.scope.signal, patience: 10_000 });
  }

  /** Read the namespaces that match, beyond those that the service lists. */
  async #find() {
    try {
      const { namespaces } = await this.#ask({ search: this.text });
      for (const each of namespaces) note(each);
      this.again();
    } catch {
      // The events report why.
    }
  }

  /** @param {Totals & {namespaces: Health[]}} told */
  #take({ namespaces, ...totals }, how) {
    if (this.scope.over) return;
    const now = Date.now();
    this.cut = totals.total > namespaces.length;
    for (const each of namespaces) note(each);
    const listed = new Set(namespaces.map((each) => each.name));
    for (const [name, row] of rows) {
      if (listed.has(name)) continue;
      // One reading may be older than a drop that happened before this page was opened.
      if (known.has(name) || (!row.gone && row.readings.length < 2 && !row.error)) rows.delete(name);
      else if (!this.cut) row.gone = row.gone || now;
      else if (now - row.heardAt > FOUND_MS) rows.delete(name);
    }
    alive();
    mode.set(how);
    this.news.tell({ error: null, rows: [...rows.values()], totals, at: now });
  }

  #fail(error) {
    const told = error instanceof ApiError ? error : new ApiError(500, { detail: String(error) });
    failed(told);
    for (const row of rows.values()) row.broken = true;
    this.news.tell({ ...this.news.value, error: told, rows: [...rows.values()] });
  }
}

/** @param {Health} told */
function note(told) {
  const found = rows.get(told.name) || { name: told.name, told: null, error: null, gone: 0, heardAt: 0, broken: false, trace: [], readings: [] };
  // An answer that is older than the drop may still list it.
  if (Date.now() - (known.get(told.name) ?? Infinity) > DROPPED_MS) known.delete(told.name);
  const row = found.gone ? { ...found, gone: 0, broken: true } : found;
  rows.set(told.name, row);
  row.heardAt = Date.now();
  if (!told.up || !told.counters) {
    row.error = new ApiError(told.problem?.status || 503, told.problem || {});
    row.broken = true;
    return;
  }
  const t = told.now_ms;
  row.told = told;
  row.error = null;
  if (row.broken) {
    // No line bridges the time without readings.
    row.trace.push({ t, open: null });
    row.readings = [];
    row.broken = false;
  }
  if (row.readings.at(-1)?.t === t) return; // the answer was cached
  row.trace = [...row.trace, { t, open: told.open }].slice(-TRACE);
  row.readings = [...row.readings, { t, counters: told.counters }].slice(-READINGS);
}

const NACKS = ["failed", "expired", "overflow", "conflict"];

/**
 * Return the verdicts per second over the last readings; null before the second one.
 *
 * @param {Row} row
 * @returns {{acked: number, nacked: number} | null}
 */
export function rates({ readings }) {
  const [first, last] = [readings[0], readings.at(-1)];
  if (!first || !last || last.t <= first.t) return null;
  const per = (names) => Math.max(0, names.reduce(
    (sum, name) => sum + (last.counters[name] || 0) - (first.counters[name] || 0), 0))
    / ((last.t - first.t) / 1000);
  return { acked: per(["acked"]), nacked: per(NACKS) };
}
