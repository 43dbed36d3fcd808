/**
 * Events of a namespace, or of the list of all, while the page is visible. If none arrive for a while,
 * the owner polls the service instead.
 */

import { mode } from "../core/connection.js";
import { stream } from "./stream.js";

/** Events arrive every second; after this silence the owner polls. */
const SILENCE_MS = 1500;
/** After a longer silence the page shows "Connected" instead of "Live". */
const STILL_MS = 5000;
/** Pause after the service refused the events. */
const AGAIN_MS = 30_000;

export class Events {
  /**
   * @param {string} namespace "" for the list of all
   * @param {import("../core/scope.js").Scope} scope the events end with the scope
   * @param {Record<string, (data: any) => void>} handlers by name of the event; a handler calls `heard`
   *   if its event makes a poll unnecessary
   * @param {() => void} [broke] called when the stream breaks
   */
  constructor(namespace, scope, handlers, broke) {
    this.namespace = namespace;
    this.scope = scope;
    this.handlers = handlers;
    this.broke = broke;
    this.heardAt = 0;
    /** Maximum time until the next event, in ms. */
    this.silence = SILENCE_MS;
    /** @type {{close: () => void} | null} */
    this.source = null;
    const shown = () => document.hidden ? this.#mute() : this.#listen();
    scope.on(document, "visibilitychange", shown);
    scope.on(window, "pagehide", () => this.#mute());
    scope.on(window, "pageshow", shown);
    scope.end(() => {
      this.#mute();
      mode.set("");
    });
    shown();
  }

  /** Note that the figures are current. @param {number} [every] time between two events, if longer than usual */
  heard(every = 0) {
    this.heardAt = Date.now();
    this.silence = Math.max(SILENCE_MS, 1.5 * every);
  }

  /** Whether the stream is open. */
  get open() {
    return Boolean(this.source);
  }

  /** Whether events arrive in time. */
  get live() {
    return Date.now() - this.heardAt < this.silence;
  }

  /** Whether events arrived recently, perhaps late. */
  get recent() {
    return this.open && Date.now() - this.heardAt < Math.max(STILL_MS, 2 * this.silence);
  }

  #listen() {
    if (this.source || this.scope.over || document.hidden) return;
    const source = stream(this.namespace, {
      take: (kind, data) => {
        try {
          this.handlers[kind]?.(JSON.parse(data));
        } catch (error) {
          console.error(error);
        }
      },
      broke: (refused) => {
        this.heardAt = 0;
        this.broke?.();
        if (refused) this.#refused();
      },
    });
    this.source = source;
  }

  /** Try again later: the service has no events, or refuses them now. */
  #refused() {
    this.#mute();
    const timer = setTimeout(() => this.#listen(), AGAIN_MS);
    this.scope.end(() => clearTimeout(timer));
  }

  #mute() {
    this.source?.close();
    this.source = null;
    this.heardAt = 0;
  }
}
