/** A lifetime: when a view is left, its scope ends its timers, requests and listeners. */
export class Scope {
  constructor() {
    this.abort = new AbortController();
    /** @type {(() => void)[]} */
    this.ends = [];
  }

  /** The signal for requests: it aborts them at the end of the scope. */
  get signal() {
    return this.abort.signal;
  }

  get over() {
    return this.signal.aborted;
  }

  /** @param {() => void} action runs at the end of the scope, or at once if it has ended */
  end(action) {
    if (this.over) action();
    else this.ends.push(action);
  }

  close() {
    if (this.over) return;
    this.abort.abort();
    for (const action of this.ends.splice(0).reverse()) action();
  }

  /**
   * Repeat an action; each pause begins at the end of a round.
   *
   * @param {() => number | Promise<number>} round returns the milliseconds until the next round
   */
  repeat(round) {
    let timer = 0;
    const run = async () => {
      const pause = await round();
      if (!this.over) timer = window.setTimeout(run, pause);
    };
    this.end(() => clearTimeout(timer));
    void run();
  }

  /**
   * @param {EventTarget} target
   * @param {string} event
   * @param {(event: any) => void} listener
   */
  on(target, event, listener) {
    target.addEventListener(event, listener, { signal: this.signal });
  }
}
