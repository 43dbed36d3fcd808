/** How long something lives: a view that is left ends its timers, requests and listeners. */
export class Scope {
  constructor() {
    this.abort = new AbortController();
    /** @type {(() => void)[]} */
    this.ends = [];
  }

  /** Requests take it, so that they end with the scope. */
  get signal() {
    return this.abort.signal;
  }

  get over() {
    return this.signal.aborted;
  }

  /** @param {() => void} action to be done when the scope ends, or at once if it has */
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
   * Do something again and again; the next round begins so long after the last has ended.
   *
   * @param {() => number | Promise<number>} round answers the milliseconds until the next
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
