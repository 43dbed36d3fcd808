/** A value with listeners. */

/** @template T */
export class Signal {
  /** @param {T} value the first value */
  constructor(value) {
    /** @readonly @type {T} */
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.listeners = new Set();
  }

  /** @param {T} value notify the listeners, if the value has changed */
  set(value) {
    if (value === this.value) return;
    this.tell(value);
  }

  /** @param {T} value notify the listeners; the error of one does not stop the others */
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
   * Listen until the scope ends.
   *
   * @param {import("./scope.js").Scope} scope
   * @param {(value: T) => void} listener
   */
  hear(scope, listener) {
    this.listeners.add(listener);
    scope.end(() => this.listeners.delete(listener));
  }
}
