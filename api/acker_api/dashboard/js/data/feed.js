/**
 * The state of a namespace, live: by server-sent events, or by polling while none arrive. Listeners
 * see no difference.
 */

import { ApiError, get, inNamespace } from "../core/api.js";
import { alive, connection, failed, mode, quiet } from "../core/connection.js";
import { Signal } from "../core/signal.js";
import { Events } from "./events.js";
import { findings } from "./health.js";
import { ENDED, History, OVERTAKEN_MS } from "./history.js";
import { lossesOf } from "./losses.js";
import { ofBlock, Verdicts } from "./verdicts.js";

/** @typedef {import("./types.js").Status} Status */

/** An unavailable Redis is reported within a second: this pause, and the time of an answer. */
const POLL_MS = 700;
const HIDDEN_MS = 10_000;
/** Pause after the service refused: too many requests, for example, or no such namespace. */
const BUSY_MS = 3000;
/** An update is late after this time, if updates are usually faster. */
const LATE_MS = 950;
/** The same for events, which arrive every second: polling as well would double the work of Redis. */
const LATE_EVENT_MS = 1300;
/** Verdicts are polled when the counters have changed, and otherwise after a longer time. */
const VERDICTS_MS = 1000;
const VERDICTS_RARELY_MS = 15_000;
/** Pause after the service refused to list verdicts. */
const AGAIN_MS = 30_000;
const SAVE_MS = 10_000;

/** Maximum number of namespaces whose history is kept while the user changes pages. */
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
   * @param {import("../core/scope.js").Scope} scope the feed ends with the scope
   */
  constructor(namespace, scope) {
    this.namespace = namespace;
    this.scope = scope;
    const { history, verdicts } = memory(namespace);
    this.history = history;
    this.verdicts = verdicts;
    /** @type {Signal<Status | null>} */
    this.status = new Signal(/** @type {Status | null} */ (null));
    /** Why there are no updates; null while there are. @type {Signal<ApiError | null>} */
    this.error = new Signal(/** @type {ApiError | null} */ (null));
    /** Why verdicts cannot be read; null while they can be. @type {Signal<ApiError | null>} */
    this.verdictError = new Signal(/** @type {ApiError | null} */ (null));
    /** Recent nacks and how many the target permits; null while none are known. @type {Signal<import("./losses.js").Losses | null>} */
    this.losses = new Signal(/** @type {import("./losses.js").Losses | null} */ (null));
    /** When the nacks of the last minutes began, if a panel has read it. @type {{since_ms: number, since_known: boolean} | null} */
    this.began = null;
    /** Recently expired trees by edge, or null. @type {Signal<Record<string, number> | null>} */
    this.expired = new Signal(/** @type {Record<string, number> | null} */ (null));
    /** The number of gaps, at which verdicts may be missing: the events could not be resumed. */
    this.gaps = new Signal(0);
    /** The number of verdicts that events left out. */
    this.dropped = new Signal(0);
    /** Whether events include verdicts. */
    this.hears = true;
    /** Usual time between two updates, in ms. */
    this.gap = 0;
    this.newsAt = 0;
    this.watch = 0;
    /** The time of the last poll of verdicts, and the counted verdicts at that time. */
    this.verdictsAt = 0;
    this.counted = -2;

    this.events = new Events(namespace, scope, this.#handlers(), () => {
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

  /** Poll the status now. */
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
    this.history.interrupt();
    this.error.tell(known);
  }

  /** @param {Status} status */
  #take(status, how) {
    if (this.scope.over) return;
    const before = this.status.value?.shards[0].now_ms ?? 0;
    const lag = before - status.shards[0].now_ms;
    if (lag > 0 && lag < OVERTAKEN_MS) return; // an event and an answer have overtaken each other
    this.history.add(status);
    this.history.note(findings(status).map(({ key }) => key), status.shards[0].now_ms);
    this.#mind();
    alive();
    mode.set(this.events.recent ? "events" : how);
    this.error.set(null);
    this.losses.set(lossesOf(status, this.began));
    this.status.tell(status);
  }

  /** Set a timer that fires when the next update is late. */
  #mind() {
    const now = Date.now();
    if (this.newsAt) this.gap = 0.8 * (this.gap || now - this.newsAt) + 0.2 * Math.min(now - this.newsAt, 5000);
    this.newsAt = now;
    clearTimeout(this.watch);
    if (document.hidden) return;
    this.watch = window.setTimeout(() => {
      quiet();
      if (this.events.open) void this.ask(); // a poll finds the reason
    }, Math.max(this.events.open ? LATE_EVENT_MS : LATE_MS, 1.15 * this.gap + 100));
  }

  async #verdictRound() {
    if (document.hidden) return HIDDEN_MS;
    const events = this.events.live && this.events.open && this.hears;
    const counted = this.#counted();
    const moved = counted !== this.counted || Date.now() - this.verdictsAt > VERDICTS_RARELY_MS;
    // With events, once after their hello: they start with the next verdict.
    if (events ? !this.verdictsAt : moved) {
      try {
        this.verdictsAt = Date.now();
        this.counted = counted;
        const signal = this.scope.signal;
        const path = inNamespace(this.namespace, "outcomes");
        // A separate request for nacks: a thousand acks per second would hide them.
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

  /** The number of all verdicts so far, by the counters. */
  #counted() {
    const counters = this.status.value?.counters;
    return counters ? ENDED.reduce((sum, name) => sum + (counters[name] || 0), 0) : -1;
  }

  /** @returns {Record<string, (data: any) => void>} */
  #handlers() {
    return {
      status: (status) => {
        this.events.heard();
        this.#take(status, "events");
      },
      hello: ({ live }) => {
        this.hears = live !== false;
        this.verdictsAt = 0; // verdicts between the last poll and this moment came by neither way
      },
      outcome: ({ outcomes, blocks = [], dropped = 0 }) => {
        this.verdicts.add([...outcomes, ...blocks.flatMap(ofBlock)]);
        if (dropped) this.dropped.tell(this.dropped.value + dropped);
        this.verdictError.set(null);
      },
      gap: () => this.gaps.tell(this.gaps.value + 1),
      problem: (problem) => {
        // While events report the problem, no poll is needed.
        this.events.heard();
        this.#fail(new ApiError(problem.status || 503, problem));
      },
    };
  }
}
