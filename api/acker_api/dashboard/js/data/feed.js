/**
 * What goes on in a namespace, as it goes on: by server-sent events while they come, by asking
 * while they do not. Whoever listens sees no difference.
 */

import { ApiError, get, inNamespace } from "../core/api.js";
import { alive, connection, failed, mode, quiet } from "../core/connection.js";
import { Signal } from "../core/signal.js";
import { Events } from "./events.js";
import { findings } from "./health.js";
import { History, OVERTAKEN_MS } from "./history.js";
import { ofBlock, Verdicts } from "./verdicts.js";

/** @typedef {import("./types.js").Status} Status */

/** Redis that is away is told of within a second: this, and the time of an answer. */
const POLL_MS = 700;
const HIDDEN_MS = 10_000;
/** After the service refused: we ask too often, say, or there is no such namespace. */
const BUSY_MS = 3000;
/** News that are later than this, and than they mostly are, are missed. */
const LATE_MS = 950;
/** The same of events, which come every second: asking as well would be twice the work for Redis. */
const LATE_EVENT_MS = 1300;
/** Verdicts are asked for when the counters have moved, and seldom otherwise. */
const VERDICTS_MS = 1000;
const VERDICTS_SELDOM_MS = 15_000;
const COUNTED = ["acked", "failed", "expired", "overflow", "conflict"];
/** After verdicts were refused. */
const AGAIN_MS = 30_000;
const SAVE_MS = 10_000;

/** Namespaces of which is remembered what was seen, while one goes from page to page. */
const REMEMBERED = 8;
/** @type {Map<string, {history: History, verdicts: Verdicts}>} */
const memories = new Map();

/** @param {string} namespace */
function memory(namespace) {
  const found = memories.get(namespace) || { history: new History(namespace), verdicts: new Verdicts() };
  memories.delete(namespace);
  memories.set(namespace, found);
  for (const name of [...memories.keys()].slice(0, -REMEMBERED)) memories.delete(name);
  return found;
}

export class Feed {
  /**
   * @param {string} namespace
   * @param {import("../core/scope.js").Scope} scope it ends with the scope
   */
  constructor(namespace, scope) {
    this.namespace = namespace;
    this.scope = scope;
    const { history, verdicts } = memory(namespace);
    this.history = history;
    this.verdicts = verdicts;
    /** @type {Signal<Status | null>} */
    this.status = new Signal(/** @type {Status | null} */ (null));
    /** Why there is no news; null while there is. @type {Signal<ApiError | null>} */
    this.error = new Signal(/** @type {ApiError | null} */ (null));
    /** Why verdicts cannot be read; null while they can. @type {Signal<ApiError | null>} */
    this.verdictError = new Signal(/** @type {ApiError | null} */ (null));
    /** Verdicts may be missing: events could not go on where they broke off. */
    this.gaps = new Signal(0);
    /** Verdicts for which events had no room. */
    this.dropped = new Signal(0);
    /** Whether events tell verdicts, too. */
    this.hears = true;
    /** Milliseconds from news to news, mostly. */
    this.gap = 0;
    this.newsAt = 0;
    this.watch = 0;
    /** When verdicts were asked for, and how many there had been by then. */
    this.verdictsAt = 0;
    this.counted = -2;

    this.events = new Events(inNamespace(namespace, "events"), scope, this.#handlers(), () => {
      if (connection.value.state === "ok" || connection.value.state === "starting") void this.ask();
    });
    scope.repeat(() => this.#round());
    scope.repeat(() => this.#verdictRound());
    scope.repeat(() => (this.history.save(), SAVE_MS));
    scope.on(window, "pagehide", () => this.history.save());
    scope.on(document, "visibilitychange", () => {
      if (document.hidden) clearTimeout(this.watch);
    });
    scope.end(() => {
      this.history.save();
      clearTimeout(this.watch);
    });
  }

  async #round() {
    if (!this.events.live) await this.ask();
    const refused = this.error.value?.status;
    if (refused && refused >= 400 && refused < 500) return BUSY_MS;
    return document.hidden ? HIDDEN_MS : POLL_MS;
  }

  /** Ask for the status now. */
  async ask() {
    try {
      const signal = this.scope.signal;
      this.#take(await get(inNamespace(this.namespace), { signal, patience: 4000 }), "polling");
    } catch (error) {
      if (!this.scope.over) this.#fail(error);
    }
  }

  #fail(error) {
    const known = error instanceof ApiError ? error : new ApiError(500, { detail: String(error) });
    failed(known);
    this.error.tell(known);
  }

  /** @param {Status} status */
  #take(status, how) {
    if (this.scope.over) return;
    const before = this.status.value?.shards[0].now_ms ?? 0;
    const behind = before - status.shards[0].now_ms;
    if (behind > 0 && behind < OVERTAKEN_MS) return; // an event and an answer have overtaken each other
    this.history.add(status);
    this.history.note(findings(status).map(({ key }) => key), status.shards[0].now_ms);
    this.#mind();
    alive();
    mode.set(this.events.recent ? "events" : how);
    this.error.set(null);
    this.status.tell(status);
  }

  /** Miss the next news when they are late. */
  #mind() {
    const now = Date.now();
    if (this.newsAt) this.gap = 0.8 * (this.gap || now - this.newsAt) + 0.2 * Math.min(now - this.newsAt, 5000);
    this.newsAt = now;
    clearTimeout(this.watch);
    if (document.hidden) return;
    this.watch = window.setTimeout(() => {
      quiet();
      if (this.events.open) void this.ask(); // events are late: ask why
    }, Math.max(this.events.open ? LATE_EVENT_MS : LATE_MS, 1.15 * this.gap + 100));
  }

  async #verdictRound() {
    if (document.hidden) return HIDDEN_MS;
    const events = this.events.live && this.events.open && this.hears;
    const counted = this.#counted();
    const moved = counted !== this.counted || Date.now() - this.verdictsAt > VERDICTS_SELDOM_MS;
    // Once at the beginning also with events: they begin with what comes next.
    if (events ? !this.verdictsAt : moved) {
      try {
        this.verdictsAt = Date.now();
        this.counted = counted;
        const signal = this.scope.signal;
        const path = inNamespace(this.namespace, "outcomes");
        // Nacks by themselves: a thousand acks a second would hide them.
        const [all, nacks] = await Promise.all([{ limit: 60 }, { limit: 60, verdict: "nack" }].map(
          (query) => get(path, { query, signal })));
        this.verdicts.add([...all.outcomes, ...nacks.outcomes]);
        this.verdictError.set(null);
      } catch (error) {
        if (this.scope.over) return HIDDEN_MS;
        this.verdictsAt = 0;
        this.verdictError.tell(error);
        if (error.notOffered) return AGAIN_MS;
      }
    }
    return VERDICTS_MS;
  }

  /** All verdicts so far, by the counters. */
  #counted() {
    const counters = this.status.value?.counters;
    return counters ? COUNTED.reduce((sum, name) => sum + (counters[name] || 0), 0) : -1;
  }

  /** @returns {Record<string, (data: any) => void>} */
  #handlers() {
    return {
      status: (status) => {
        this.events.heard();
        this.#take(status, "events");
      },
      hello: ({ live }) => { this.hears = live !== false; },
      outcome: ({ outcomes, blocks = [], dropped = 0 }) => {
        this.verdicts.add([...outcomes, ...blocks.flatMap(ofBlock)]);
        if (dropped) this.dropped.tell(this.dropped.value + dropped);
        this.verdictError.set(null);
      },
      gap: () => this.gaps.tell(this.gaps.value + 1),
      problem: (problem) => {
        // The service tells by itself that Redis is away; so it need not be asked meanwhile.
        this.events.heard();
        this.#fail(new ApiError(problem.status || 503, problem));
      },
    };
  }
}
