/** The creation of a namespace. */

import { change } from "../core/api.js";
import { go, href } from "../core/router.js";
import { ask, toast } from "../ui/dialog.js";

/** Ask for a name, and create the namespace with the defaults; its page changes the settings. */
export async function createNamespace() {
  let name = "";
  const made = await ask({
    title: "New namespace",
    text: ["It has the defaults: three buckets of 30 s, one shard, a high-water mark of 100,000. "
      + "Use acker-redis create for other numbers of buckets and shards."],
    field: { label: "Name", hint: "Letters, digits, and _ . - ; 64 at most" },
    confirm: "Create",
    act: async (text) => {
      name = text.trim();
      await change("POST", "/namespaces", { name });
    },
  });
  if (made === null) return;
  toast(`${name} was created`);
  go(href(["ns", name]));
}
