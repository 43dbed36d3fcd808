/** Dialogs before a change, and messages after it. */

import { h, icon, put } from "../core/dom.js";

let numbers = 0;

/**
 * Ask, then act. The dialog stays open during the action, and shows its error.
 *
 * @param {object} question
 * @param {string} question.title
 * @param {any[]} question.text paragraphs
 * @param {string} question.confirm label of the button
 * @param {boolean} [question.danger]
 * @param {{label: string, value?: string, hint?: string}} [question.field] one line of text
 * @param {{label: string, value?: string, hint?: string}[]} [question.more] more lines of text
 * @param {string} [question.typed] text that the user must type before the button works
 * @param {(text: string, stopped: () => boolean, more: string[]) => Promise<string | void>} question.act
 *   gets the text of the field; `stopped` returns whether it must end; `more`: the other texts
 * @param {boolean} [question.long] it has many steps, and can be stopped between them
 * @returns {Promise<string | null>} the result of `act` ("" for none); null: it was cancelled
 */
export function ask({ title, text, confirm, danger = false, field, more = [], typed, act, long = false }) {
  const id = `dialog-${(numbers += 1)}`;
  const label = typed ? h("span", {}, "Type ", h("b", { class: "typed" }, typed), " to confirm")
    : field?.label;
  const line = (its, name, most) => h("input", {
    id: `${id}-${name}`, class: "input", type: "text", value: its?.value || "", maxlength: most,
    "aria-describedby": its?.hint ? `${id}-${name}-hint` : null,
    autocomplete: "off", spellcheck: "false", autocapitalize: "off",
  });
  const labelled = (its, of, words) => h("div", { class: "field" }, h("label", { for: of.id }, words), of,
    its?.hint ? h("small", { id: `${of.id}-hint` }, its.hint) : null);
  const input = line(field, "input", 255);
  const others = more.map((each, at) => line(each, `more-${at}`, 600));
  const trouble = h("p", { class: "form-error", role: "alert" });
  const yes = h("button", { class: `button ${danger ? "danger" : "primary"}`, type: "submit" }, confirm);
  const no = h("button", { class: "button", type: "button" }, "Cancel");
  yes.disabled = Boolean(typed);
  const form = h("form", { class: "dialog-form", novalidate: true },
    h("h2", { id: `${id}-title` }, title),
    text.map((each) => h("p", {}, each)),
    field || typed ? labelled(field, input, label) : null,
    others.map((each, at) => labelled(more[at], each, more[at].label)),
    trouble,
    h("div", { class: "dialog-buttons" }, no, yes));
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": `${id}-title` }, form);
  document.body.append(dialog);

  return new Promise((resolve) => {
    /** @type {string | null} */
    let result = null;
    let busy = false;
    let stopped = false;
    input.addEventListener("input", () => {
      if (typed) yes.disabled = input.value !== typed;
    });
    const end = () => {
      stopped = true;
      no.disabled = true;
    };
    no.addEventListener("click", () => busy ? end() : dialog.close());
    dialog.addEventListener("cancel", (event) => {
      if (!busy) return;
      event.preventDefault();
      if (long) end();
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (busy || yes.disabled) return;
      busy = true;
      stopped = false;
      yes.disabled = true;
      no.disabled = !long;
      if (long) put(no, "Stop");
      put(trouble);
      try {
        result = (await act(input.value, () => stopped, others.map(({ value }) => value))) || "";
        busy = false;
        dialog.close();
      } catch (error) {
        busy = false;
        yes.disabled = no.disabled = false;
        put(no, "Cancel");
        put(trouble, error instanceof Error ? error.message : String(error));
      }
    });
    void open(dialog, () => {
      if (busy && long) end();
      return busy;
    }).then(() => resolve(result));
    (field || typed ? input : no).focus();
  });
}

/**
 * Show a text until it is closed.
 *
 * @param {string} title
 * @param {...any} content
 */
export async function sheet(title, ...content) {
  const id = `dialog-${(numbers += 1)}`;
  const close = h("button", { class: "button", type: "submit" }, "Close");
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": id },
    h("form", { class: "dialog-form", method: "dialog" }, h("h2", { id }, title), ...content,
      h("div", { class: "dialog-buttons" }, close)));
  document.body.append(dialog);
  const closed = open(dialog, () => false);
  close.focus();
  await closed;
}

/**
 * Show a dialog, and remove it once it is closed. It has an entry of its own in the history, so that
 * Back closes it and the page stays. Resolves when that entry has been left too: until then, a new
 * address would be lost.
 *
 * @param {any} dialog
 * @param {() => boolean} held whether it must stay open
 * @returns {Promise<void>}
 */
function open(dialog, held) {
  history.pushState({ dialog: true }, "");
  dialog.showModal();
  return new Promise((resolve) => {
    let left = false;
    const popped = () => {
      if (held()) {
        history.pushState({ dialog: true }, "");
        return;
      }
      left = true;
      window.removeEventListener("popstate", popped);
      dialog.close();
      dialog.remove();
      resolve();
    };
    window.addEventListener("popstate", popped);
    dialog.addEventListener("close", () => {
      if (!left) history.back();
    });
  });
}

/**
 * Show a message for some seconds.
 *
 * @param {string} text
 */
export function toast(text) {
  const place = document.getElementById("toasts");
  const note = h("div", { class: "toast" }, icon("check"), h("span", {}, text));
  place?.append(note);
  setTimeout(() => note.remove(), 6000);
}
