/**
 * A panel fails alone: it shows the error of its request or of its drawing, and retries. Other panels
 * continue.
 */

import { duration } from "../core/format.js";
import { h, icon, put, say } from "../core/dom.js";

const RETRY_MS = [1000, 2000, 4000];
let numbers = 0;

/**
 * @typedef {object} PanelOptions
 * @property {string} title
 * @property {string} [note] the meaning of the figures, in small type under the title
 * @property {any[]} [tools] controls to the right of the title
 * @property {string} [kind] more classes
 * @property {number} [level] of the heading
 * @property {"all" | "rows"} [fold] on a phone, only its title is shown until it is opened; or only the
 *   first rows of its table
 */

export class Panel {
  /** @param {PanelOptions} options */
  constructor({ title, note, tools = [], kind = "", level = 2, fold }) {
    const id = `panel-${(numbers += 1)}`;
    this.heading = h(`h${level}`, { id }, title);
    this.note = h("p", { class: "panel-note" }, note);
    this.body = h("div", { class: "panel-body" });
    this.trouble = h("div", { class: "trouble", hidden: true });
    const body = `${id}-body`;
    this.body.id = body;
    const folded = fold && h("button", { class: "button small fold", type: "button", "aria-expanded": "false", "aria-controls": body,
      "aria-describedby": id, on: { click: () => this.open(!this.root.classList.contains("opened")) } }, fold === "rows" ? "Show all" : "Show");
    this.folds = [fold === "rows" ? "Show all" : "Show", fold === "rows" ? "Show fewer" : "Hide"];
    this.fold = folded;
    this.root = h("section", { class: `panel ${kind}${fold ? ` foldable fold-${fold}` : ""}`, "aria-labelledby": id },
      h("header", { class: "panel-head" },
        h("div", { class: "panel-title" },
          this.heading, note === undefined ? null : this.note),
        folded,
        tools.length ? h("div", { class: "tools" }, tools) : null),
      this.trouble, this.body);
  }

  /** @param {boolean} opened whether a phone shows the whole panel */
  open(opened) {
    this.root.classList.toggle("opened", opened);
    this.fold.setAttribute("aria-expanded", String(opened));
    say(this.fold, this.folds[Number(opened)]);
  }

  /** @param {string} text */
  setTitle(text) {
    say(this.heading, text);
  }

  /** @param {string} text */
  setNote(text) {
    say(this.note, text);
  }

  /**
   * @param {unknown} error
   * @param {() => void} [retry]
   */
  fail(error, retry) {
    const known = /** @type {any} */ (error);
    const told = error instanceof Error ? error.message : String(error);
    const title = known?.forbidden ? `Not permitted: ${told}` : known?.title || "This panel has failed";
    const text = known?.forbidden ? title : told;
    // During an outage the banner reports it, once for all panels.
    this.trouble.classList.toggle("outage", Boolean(known?.away));
    const said = `${title} ${text}`;
    this.root.classList.add("failed");
    this.trouble.hidden = false;
    if (this.trouble.dataset.said === said) return;
    this.trouble.dataset.said = said;
    put(this.trouble, icon("alert"),
      h("div", {}, h("strong", {}, title), text === title ? null : h("p", {}, text)),
      retry ? h("button", { class: "button small", type: "button", on: { click: retry } }, "Try again")
        : null);
  }

  recover() {
    if (this.trouble.hidden) return;
    this.trouble.hidden = true;
    this.root.classList.remove("failed");
    delete this.trouble.dataset.said;
    put(this.trouble);
  }

  /**
   * Run an action of this panel; the panel shows its error.
   *
   * @param {() => void} draw
   */
  safely(draw) {
    try {
      draw();
      this.recover();
    } catch (error) {
      console.error(error);
      this.fail(error);
    }
  }

  /**
   * Draw with every value of a signal that is not null.
   *
   * @template T
   * @param {import("../core/scope.js").Scope} scope
   * @param {import("../core/signal.js").Signal<T>} signal
   * @param {(value: NonNullable<T>) => void} draw
   */
  follow(scope, signal, draw) {
    const take = (value) => {
      if (value !== null && value !== undefined) this.safely(() => draw(value));
    };
    signal.hear(scope, take);
    take(signal.value);
  }

  /**
   * Load and draw repeatedly. The panel shows an error, and retries with growing pauses.
   *
   * @template T
   * @param {import("../core/scope.js").Scope} scope
   * @param {{load: (signal: AbortSignal) => Promise<T>, draw: (found: T) => void,
   *   every?: number, offline?: string}} work `every`: milliseconds; 0: once.
   *   `offline`: text for a service that does not offer it
   * @returns {() => Promise<void>} load now
   */
  load(scope, { load, draw, every = 0, offline = "" }) {
    let timer = 0;
    let failures = 0;
    let round = 0;
    const again = (pause) => {
      clearTimeout(timer);
      if (!scope.over) timer = window.setTimeout(run, pause);
    };
    const run = async () => {
      const mine = (round += 1);
      clearTimeout(timer);
      try {
        if (document.hidden && failures === 0 && every) return again(every);
        const found = await load(scope.signal);
        if (scope.over || mine !== round) return undefined;
        draw(found);
        this.recover();
        failures = 0;
        if (every) again(every);
      } catch (error) {
        if (scope.over || mine !== round) return undefined;
        const known = /** @type {any} */ (error);
        if (known.notOffered && offline) {
          put(this.body, empty("plug", "Not offered", offline));
          this.recover();
          return undefined;
        }
        const pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
        failures += 1;
        this.fail(error, () => void run());
        // A refused request is not repeated: its answer would be the same.
        if (!known.status || known.status >= 500 || known.status === 429) again(pause);
      }
      return undefined;
    };
    scope.end(() => clearTimeout(timer));
    void run();
    return run;
  }
}

/**
 * Return a message for an empty panel.
 *
 * @param {string} name of an icon
 * @param {string} title
 * @param {any} text
 * @param {...any} more
 */
export function empty(name, title, text, ...more) {
  return h("div", { class: "empty" }, icon(name), h("strong", {}, title), h("p", {}, text), ...more);
}

/**
 * Return grey lines in the size of the data to come.
 *
 * @param {number} lines
 */
export function skeleton(lines) {
  return h("div", { class: "skeleton", "aria-hidden": "true" },
    Array.from({ length: lines }, () => h("span", { class: "bone" })));
}

/**
 * @param {"ok" | "high" | "over" | "plain" | "info"} level
 * @param {string} text
 */
export function chip(level, text) {
  return h("span", { class: `chip ${level}` }, text);
}

/**
 * Return an age.
 *
 * @param {number} ms
 */
export function age(ms) {
  return h("span", { class: "number" }, duration(Math.max(0, ms)));
}
