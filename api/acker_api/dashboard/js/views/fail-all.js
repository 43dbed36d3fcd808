/** Fail all trees that match: first looked for, then asked, then done page by page. */

import { change, inNamespace } from "../core/api.js";
import { foreign, h, say } from "../core/dom.js";
import { plural } from "../core/format.js";
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
    .filter(([name, value]) => value !== "" && name !== "kind")
    .map(([name, value]) => [name, name === "bucket" ? Number(value) : value]));
  const path = inNamespace(namespace, "trees", "fail");
  const progress = h("span", { role: "status" }, "Looking for them");
  const sample = h("ul", { class: "sample" });
  let matched = 0;

  const walk = async (dry_run, why, told) => {
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
    } while (cursor);
    return total;
  };

  const first = await ask({
    title: "Fail all that match",
    text: ["Every tree that matches the filter is looked for first; nothing is changed yet. That is a scan of all that is pending.",
      progress],
    confirm: "Look for them",
    act: async () => {
      matched = await walk(true, "", (total) => say(progress, `${plural(total, "tree")} found so far`));
    },
  });
  if (first === null) return;
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
    typed: undefined,
    danger: true,
    confirm: `Fail ${plural(matched, "tree")}`,
    act: async (why) => {
      failed = await walk(false, why, (total) => say(state, `${plural(total, "tree")} failed so far`));
    },
  });
  if (second === null) return;
  toast(`${plural(failed, "tree")} failed`);
  done();
}
