/**
 * Server-sent events of one address, as long as the page is shown. They are told to handlers; whoever
 * has none for a while asks the service instead.
 */

import { address } from "../core/api.js";
import { mode } from "../core/connection.js";

/** Events come every second; without one for so long we ask. */
const SILENCE_MS = 1500;
/** Events that are late are events all the same. */
const STILL_MS = 5000;
/** After events were refused. */
const AGAIN_MS = 30_000;

export class Events {
  /**
   * @param {string} path
   * @param {import("../core/scope.js").Scope} scope it ends with the scope
   * @param {Record<string, (data: any) => void>} handlers by name of the event; those after which
   *   nobody need ask call `heard`
   * @param {() => void} [broke] the stream broke off
   */
  constructor(path, scope, handlers, broke) {
    this.path = path;
    this.scope = scope;
    this.handlers = handlers;
    this.broke = broke;
    this.heardAt = 0;
    /** @type {EventSource | null} */
    this.source = null;
    const shown = () => document.hidden ? this.#mute() : this.#listen();
    scope.on(document, "visibilitychange", shown);
    scope.end(() => {
      this.#mute();
      mode.set("");
    });
    shown();
  }

  /** Note that all is known that there is to know just now. */
  heard() {
    this.heardAt = Date.now();
  }

  /** Whether they are listened to. */
  get open() {
    return Boolean(this.source);
  }

  /** Whether they come in time. */
  get live() {
    return Date.now() - this.heardAt < SILENCE_MS;
  }

  /** Whether they came lately, if late. */
  get recent() {
    return this.open && Date.now() - this.heardAt < STILL_MS;
  }

  #listen() {
    if (this.source || this.scope.over || document.hidden) return;
    const source = new EventSource(address(this.path));
    this.source = source;
    for (const [name, take] of Object.entries(this.handlers)) {
      source.addEventListener(name, (message) => {
        try {
          take(JSON.parse(message.data));
        } catch (error) {
          console.error(error);
        }
      });
    }
    source.onerror = () => {
      this.heardAt = 0;
      this.broke?.();
      if (source.readyState === EventSource.CLOSED) this.#refused();
    };
  }

  /** There are no events here, or not now: try again later. */
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
