/** The creation of a namespace. */

import { change } from "../core/api.js";
import { go, href } from "../core/router.js";
import { ask, toast } from "../ui/dialog.js";
import { milliseconds } from "./trees.js";

/** Ask for a name, edges and a deadline, and create the namespace; all else has its default. */
export async function createNamespace() {
  let name = "";
  const made = await ask({
    title: "New namespace",
    text: ["It has the defaults: three buckets of 30 s, one shard, a high-water mark of 100,000. "
      + "Use acker-redis create for other numbers of buckets and shards."],
    field: { label: "Name", hint: "Letters, digits, and _ . - ; 64 at most" },
    more: [
      { label: "Edges", hint: "Up to eight names, separated by commas: the queues, topics or tables between the steps. "
        + "They cannot be changed later. Empty: none" },
      { label: "Deadline", hint: "Empty: a tree expires 90 s after its first row. With a deadline such as 10min, each row "
        + "gives it 90 s more, up to this age" },
    ],
    confirm: "Create",
    act: async (text, _, [edges, deadline]) => {
      name = text.trim();
      await change("POST", "/namespaces", wanted(name, edges, deadline));
    },
  });
  if (made === null) return;
  toast(`${name} was created`);
  go(href(["ns", name]));
}

/**
 * Return the request for the texts of the form. Throws an Error for a deadline that is not a time.
 *
 * @param {string} name
 * @param {string} edges
 * @param {string} deadline
 */
export function wanted(name, edges, deadline) {
  const names = edges.split(",").map((each) => each.trim()).filter(Boolean);
  const ms = milliseconds(deadline);
  if (deadline.trim() && ms === null) throw new Error(`${deadline} is not a time: write 90s, 10min or 2h.`);
  return { name, edges: names, ...(ms === null ? {} : { refresh: "update", deadline_ms: ms }) };
}
