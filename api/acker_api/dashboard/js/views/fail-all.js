/** Fail all trees that match: count them, ask, then fail them page by page. */

import { change, inNamespace } from "../core/api.js";
import { foreign, h, say } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { ask, toast } from "../ui/dialog.js";

const MOST = 1000;
const SHOWN = 5;

/**
 * @param {string} namespace
 * @param {Record<string, any>} filter as the API takes it
 * @param {() => void} done
 */
export async function failAll(namespace, filter, done) {
  const asked = Object.fromEntries(Object.entries(filter)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => [name, name === "bucket" ? Number(value) : value]));
  const path = inNamespace(namespace, "trees", "fail");
  const progress = h("span", { role: "status" }, "Not started");
  const sample = h("ul", { class: "sample" });
  let matched = 0;
  /** Whether it was stopped before the end. */
  let unfinished = false;

  const walk = async (dry_run, why, told, stopped) => {
    let cursor;
    let total = 0;
    do {
      const body = { filter: asked, why, dry_run, most: MOST, ...(cursor ? { cursor } : {}) };
      const found = await change("POST", path, body);
      total += dry_run ? found.matched : found.failed;
      for (const tree of found.sample || []) {
        if (dry_run && sample.childElementCount < SHOWN) sample.append(h("li", {}, foreign(tree.source_id || tree.anchor)));
      }
      told(total);
      cursor = found.next;
    } while (cursor && !stopped());
    unfinished = Boolean(cursor);
    return total;
  };

  const first = await ask({
    title: "Fail all that match",
    text: ["The first step counts the trees that match, and changes nothing. It reads all pending records.",
      progress],
    confirm: "Count them",
    long: true,
    act: async (_, stopped) => {
      matched = await walk(true, "", (total) => say(progress, `${plural(total, "tree")} found so far`), stopped);
    },
  });
  if (first === null) return;
  if (unfinished) {
    toast(`Stopped; ${plural(matched, "tree")} found so far, and nothing was changed`);
    return;
  }
  if (!matched) {
    toast("No tree matches");
    return;
  }
  const state = h("span", { role: "status" }, "");
  let failed = 0;
  const second = await ask({
    title: `Fail ${plural(matched, "tree")}?`,
    text: ["Their sources are notified at once, and replay them. New trees that match fail too.", sample, state],
    field: { label: "Why", hint: "Their sources receive it" },
    danger: true,
    long: true,
    confirm: `Fail ${plural(matched, "tree")}`,
    act: async (why, stopped) => {
      failed = await walk(false, why, (total) => say(state, `${plural(total, "tree")} of about ${count(matched)} failed so far`), stopped);
    },
  });
  if (second === null) return;
  toast(unfinished ? `Stopped; ${plural(failed, "tree")} failed so far` : `${plural(failed, "tree")} failed`);
  done();
}
