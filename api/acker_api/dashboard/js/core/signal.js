/** One thing that others want to know of. */

/** @template T */
export class Signal {
  /** @param {T} value what holds until something else is told */
  constructor(value) {
    /** @readonly @type {T} */
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.listeners = new Set();
  }

  /** @param {T} value tell everybody, if it is another */
  set(value) {
    if (value === this.value) return;
    this.tell(value);
  }

  /** @param {T} value tell everybody; one who fails keeps nobody else from hearing it */
  tell(value) {
    /** @type {any} */ (this).value = value;
    for (const listener of [...this.listeners]) {
      try {
        listener(value);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /**
   * Hear of what comes, until the scope ends.
   *
   * @param {import("./scope.js").Scope} scope
   * @param {(value: T) => void} listener
   */
  hear(scope, listener) {
    this.listeners.add(listener);
    scope.end(() => this.listeners.delete(listener));
  }
}
