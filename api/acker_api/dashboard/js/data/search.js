/** A search over one namespace or all of them: bounded requests, until enough is found or all is read. */

import { get, inNamespace } from "../core/api.js";

/** Maximum number of requests before the user is asked to continue. */
const REQUESTS = 20;
/** Matches after which the user is asked to continue. */
const ENOUGH = 50;
const NAMES = 1000;

/**
 * @typedef {object} Looked how far one namespace was searched
 * @property {string} name
 * @property {string | null} next null: everything was read
 * @property {boolean} begun
 * @property {string} error why it could not be searched
 * @property {{looked: number, total: number, complete: boolean}} pending
 * @property {{looked: number, total: number, complete: boolean}} verdicts
 * @property {{looked: number, since_ms: number | null, complete: boolean}} recent
 *
 * @typedef {object} Hit
 * @property {"pending" | "block" | "waits" | "passed"} place
 * @property {string} namespace
 * @property {any} found a tree, a block or a verdict
 */

export class Search {
  /**
   * @param {string} text
   * @param {string} namespace "" for all that the user may see
   * @param {AbortSignal} signal
   */
  constructor(text, namespace, signal) {
    this.text = text;
    this.namespace = namespace;
    this.signal = signal;
    /** @type {Looked[]} */
    this.namespaces = [];
    /** Names of namespaces that contain the text. @type {string[]} */
    this.named = [];
    /** @type {Map<string, Hit>} */
    this.hits = new Map();
    this.running = false;
    this.named_all = false;
  }

  /** Whether everything was read. */
  get complete() {
    return this.named_all && this.namespaces.every(({ begun, next, error }) => error || (begun && !next));
  }

  /**
   * Read on.
   *
   * @param {() => void} drawn called after each answer
   */
  async go(drawn) {
    this.running = true;
    try {
      if (!this.named_all) await this.#names();
      const before = this.hits.size;
      for (let requests = 0; requests < REQUESTS && !this.complete; requests += 1) {
        drawn();
        await this.#one();
        if (this.hits.size - before >= ENOUGH || this.#exact(before)) break;
      }
    } finally {
      this.running = false;
    }
    drawn();
  }

  async #names() {
    if (this.namespace) {
      this.namespaces = [fresh(this.namespace)];
    } else {
      /** @type {string | null} */
      let after = "";
      while (after !== null) {
        const page = await get("/namespaces", { query: { after, limit: NAMES }, signal: this.signal });
        this.namespaces.push(...page.namespaces.map(({ name }) => fresh(name)));
        after = page.next;
      }
      this.named = this.namespaces.map(({ name }) => name).filter((name) => name.includes(this.text));
    }
    this.named_all = true;
  }

  /** Send one request: first each namespace once, then on where something is left. */
  async #one() {
    const left = this.namespaces.filter(({ begun, next, error }) => !error && (!begun || next));
    const place = left.find(({ begun }) => !begun) || left[0];
    if (!place) return;
    try {
      const query = { q: this.text, cursor: place.next };
      this.#take(place, await get(inNamespace(place.name, "search"), { query, signal: this.signal }));
    } catch (error) {
      if (this.signal.aborted) throw error;
      place.error = error instanceof Error ? error.message : String(error);
    }
  }

  /** @param {Looked} place @param {any} found */
  #take(place, found) {
    const { pending, verdicts, recent } = found.places;
    for (const [kept, told] of [[place.pending, pending], [place.verdicts, verdicts]]) {
      kept.looked += told.looked;
      kept.total = told.total;
      kept.complete = told.complete;
    }
    if (!place.begun) place.recent = recent;
    place.begun = true;
    place.next = found.next;
    for (const each of found.trees) this.#add("pending", place.name, each, each.anchor);
    for (const each of found.blocks) this.#add("block", place.name, each, each.block);
    for (const each of found.verdicts) this.#add("waits", place.name, each, keyOf(each));
    for (const each of found.recent) {
      if (!this.hits.has(`waits/${place.name}/${keyOf(each)}`)) this.#add("passed", place.name, each, keyOf(each));
    }
  }

  /** @param {Hit["place"]} place */
  #add(place, namespace, found, key) {
    const name = `${place}/${namespace}/${key}`;
    if (!this.hits.has(name)) this.hits.set(name, { place, namespace, found });
  }

  /** Whether a new hit has the whole text as its id, and not only as the beginning of it. */
  #exact(before) {
    if (this.hits.size === before) return false;
    const [anchor] = /^[0-9]+:[0-9]+$/.test(this.text) ? this.text.split(":") : [this.text];
    return [...this.hits.values()].some(({ found }) => found.anchor === anchor
      || found.source_id === this.text || found.label === this.text || Number.parseInt(found.residual, 16) > 0
      && BigInt(`0x${found.residual}`) === numberOf(this.text));
  }
}

/** @param {string} text */
function numberOf(text) {
  const digits = text.split(":").at(-1) || "";
  if (/^[0-9a-f]{16}$/.test(digits)) return BigInt(`0x${digits}`);
  return /^[0-9]{1,19}$/.test(digits) ? BigInt(digits) : -1n;
}

/** A verdict may wait and have passed on the feed; the two have other fields. */
function keyOf({ anchor, block, verdict, reason, source, trees }) {
  return `${trees > 1 ? `block ${block}` : anchor}/${verdict}/${reason}/${source}`;
}

/** @returns {Looked} */
function fresh(name) {
  return { name, next: null, begun: false, error: "", pending: { looked: 0, total: 0, complete: false },
    verdicts: { looked: 0, total: 0, complete: false }, recent: { looked: 0, since_ms: null, complete: true } };
}
