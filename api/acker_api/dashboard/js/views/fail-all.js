/** Fail all trees that match: first looked for, then asked, then done page by page. */

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
  const progress = h("span", { role: "status" }, "Looking for them");
  const sample = h("ul", { class: "sample" });
  let matched = 0;
  /** Whether it was stopped before all had been looked at. */
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
    text: ["Every tree that matches the filter is looked for first; nothing is changed yet. That is a scan of all that is pending.",
      progress],
    confirm: "Look for them",
    long: true,
    act: async (_, stopped) => {
      matched = await walk(true, "", (total) => say(progress, `${plural(total, "tree")} found so far`), stopped);
    },
  });
  if (first === null) return;
  if (unfinished) {
    toast(`Stopped; ${plural(matched, "tree")} found until then, and nothing was changed`);
    return;
  }
  if (!matched) {
    toast("None matches");
    return;
  }
  const state = h("span", { role: "status" }, "");
  let failed = 0;
  const second = await ask({
    title: `Fail ${plural(matched, "tree")}?`,
    text: ["Their sources are told at once, and replay them. What has come meanwhile and matches fails too.", sample, state],
    field: { label: "Why", hint: "Their sources read it" },
    danger: true,
    long: true,
    confirm: `Fail ${plural(matched, "tree")}`,
    act: async (why, stopped) => {
      failed = await walk(false, why, (total) => say(state, `${plural(total, "tree")} of about ${count(matched)} failed so far`), stopped);
    },
  });
  if (second === null) return;
  toast(unfinished ? `Stopped; ${plural(failed, "tree")} failed until then` : `${plural(failed, "tree")} failed`);
  done();
}
