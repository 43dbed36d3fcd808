/** The map of a block: one cell for each slot, coloured by its state. */

import { h, put, say } from "../core/dom.js";
import { count } from "../core/format.js";
import { go, href } from "../core/router.js";

/** @typedef {"open" | "done" | "failed" | "absent"} SlotState */

const STATES = /** @type {[SlotState, string][]} */ ([
  ["open", "open"], ["done", "done"], ["failed", "failed"], ["absent", "without a tree"]]);
/** With more slots the cells are smaller. */
const MANY = 600;
/** Maximum number of slots that are listed as links. */
const LISTED = 200;
const BLOCK_BIT = 1n << 62n;

/**
 * Return the anchor of a slot.
 *
 * @param {string} block its number
 * @param {number} slot
 */
export function anchorOf(block, slot) {
  return String(BLOCK_BIT | BigInt(block) << 12n | BigInt(slot));
}

/**
 * Return the block and the slot of an anchor; null for a loose tree.
 *
 * @param {string} anchor
 */
export function slotOf(anchor) {
  const number = /^(0x[0-9a-f]{1,16}|[0-9]{1,19})$/i.test(anchor) ? BigInt(anchor) : 0n;
  return number & BLOCK_BIT ? { block: String((number & (BLOCK_BIT - 1n)) >> 12n), slot: Number(number & 0xfffn) } : null;
}

/**
 * Return the state of each slot. A failed slot may have messages outstanding; it has its verdict.
 *
 * @param {import("../data/types.js").Block} block
 * @returns {SlotState[]}
 */
export function slotStates({ slots, open, failed, absent = [] }) {
  /** @type {SlotState[]} */
  const states = Array(slots).fill("done");
  for (const slot of open) states[slot] = "open";
  for (const slot of failed) states[slot] = "failed";
  for (const slot of absent) states[slot] = "absent";
  return states;
}

export class SlotMap {
  /**
   * @param {string} namespace
   * @param {number} [current] the slot of the page
   */
  constructor(namespace, current = -1) {
    this.namespace = namespace;
    this.current = current;
    this.block = "";
    /** @type {any[]} */
    this.cells = [];
    this.map = h("div", { class: "slot-map", role: "img", on: { click: (event) => this.#choose(event) } });
    this.legend = h("ul", { class: "legend", role: "list" });
    this.lists = h("dl", { class: "facts wide" });
    this.root = h("div", { class: "slots-box" }, this.legend, this.map,
      h("p", { class: "quiet" }, "Click a slot to see its tree."), this.lists);
  }

  /** @param {import("../data/types.js").Block} block */
  set(block) {
    const states = slotStates(block);
    if (this.block !== block.block || this.cells.length !== states.length) {
      this.block = block.block;
      this.cells = states.map((_, slot) => h("i", { data: { slot } }));
      this.map.classList.toggle("many", states.length > MANY);
      put(this.map, this.cells);
      this.said = "";
    }
    const said = states.join();
    if (said === this.said) return; // what a reader has selected stays
    this.said = said;
    states.forEach((state, slot) => {
      const cell = this.cells[slot];
      cell.className = slot === this.current ? `slot ${state} here` : `slot ${state}`;
      cell.title = `Slot ${slot}: ${state}`;
    });
    const of = (state) => states.flatMap((each, slot) => each === state ? [slot] : []);
    const found = STATES.map(([state, words]) => ({ state, words, slots: of(state) }));
    this.map.setAttribute("aria-label", `${count(states.length)} slots: ${found.map(
      ({ words, slots }) => `${count(slots.length)} ${words}`).join(", ")}`);
    put(this.legend, found.map(({ state, words, slots }) => h("li", {}, h("i", { class: `slot ${state}`, "aria-hidden": "true" }),
      `${words} `, h("span", { class: "number" }, count(slots.length)))));
    put(this.lists, found.filter(({ state, slots }) => state !== "done" && slots.length).map(
      ({ state, words, slots }) => h("div", {}, h("dt", {}, `Slots ${words} (${count(slots.length)})`),
        h("dd", { class: "slots number" }, this.#list(slots, state !== "absent")))));
  }

  /** @param {number[]} slots @param {boolean} linked */
  #list(slots, linked) {
    const shown = slots.slice(0, LISTED).flatMap((slot, at) => [at ? ", " : "", linked
      ? h("a", { href: this.#href(slot) }, String(slot)) : String(slot)]);
    return slots.length > LISTED ? [...shown, ` and ${count(slots.length - LISTED)} more`] : shown;
  }

  #href(slot) {
    return href(["ns", this.namespace, "trees", anchorOf(this.block, slot)]);
  }

  #choose(event) {
    const { slot } = event.target.dataset;
    if (slot !== undefined && !event.target.classList.contains("absent")) go(this.#href(Number(slot)));
  }
}
