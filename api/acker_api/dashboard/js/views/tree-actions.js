/** Fail a tree, touch a tree or a block: the buttons, their dialogs and their messages. */

import { foreign, h } from "../core/dom.js";
import { change, inNamespace } from "../core/api.js";
import { count } from "../core/format.js";
import { may } from "../data/session.js";
import { ask, toast } from "../ui/dialog.js";
import { slotOf } from "../ui/slots.js";

/** @typedef {import("../data/types.js").Tree} Tree */

/**
 * Return what a read returns, or null if the tree or block is not pending.
 *
 * @param {() => Promise<any>} read
 */
export async function pending(read) {
  try {
    return await read();
  } catch (error) {
    const known = /** @type {any} */ (error);
    if (known.status === 404 && known.code !== "namespace-not-found" && !known.notOffered) return null;
    throw error;
  }
}

/**
 * Return the buttons for a tree.
 *
 * @param {string} namespace
 * @param {Tree} tree
 * @param {() => void} done
 */
export function treeActions(namespace, tree, done) {
  if (!may("operator", namespace)) return null;
  const { anchor, state, block } = tree;
  const name = nameOf(tree);
  const fail = h("button", { class: "button danger", type: "button", on: { click: async () => {
    let failed = 1;
    const made = await ask({
      title: "Fail this tree?",
      text: [name(), block ? `Only this tree of the block, slot ${slotOf(anchor)?.slot}, fails.` : null,
        "Its source is notified at once, and replays it. This cannot be undone."].filter(Boolean),
      field: { label: "Why", hint: "The source receives it" }, confirm: "Fail it", danger: true,
      act: async (text) => { failed = (await change("POST", inNamespace(namespace, "trees", anchor, "fail"), { why: text }))?.failed ?? 1; },
    });
    if (made === null) return;
    toast(failed ? "The tree has failed" : "The tree was no longer pending");
    done();
  } } }, "Fail");
  return [block ? touchBlock(namespace, tree, done) : touch(namespace, tree, done), state === "failed" ? null : fail];
}

/**
 * Return the button that touches a whole block; null if the user may not.
 *
 * @param {string} namespace
 * @param {Tree} tree any tree of the block
 * @param {() => void} done
 */
export function touchBlock(namespace, tree, done) {
  const { slots, absent = [] } = /** @type {import("../data/types.js").Block} */ (tree.block);
  return touch(namespace, tree, done, "Touch the block", "Touch the whole block?",
    `This resets the timeout of all its ${count(slots - absent.length)} trees: the block gets its full lifetime again.`);
}

function touch(namespace, tree, done, label = "Touch", title = "Touch this tree?",
  text = "This resets its timeout: it gets its full lifetime again.") {
  if (!may("operator", namespace)) return null;
  return h("button", { class: "button", type: "button", on: { click: async () => {
    const made = await ask({ title, text: [nameOf(tree)(), text], confirm: "Touch",
      act: async () => { await change("POST", inNamespace(namespace, "trees", tree.anchor, "touch"), {}); } });
    if (made === null) return;
    toast("The timeout was reset");
    done();
  } } }, label);
}

function nameOf({ source_id, anchor }) {
  return () => h("span", {}, source_id ? foreign(source_id) : `anchor ${anchor}`);
}
