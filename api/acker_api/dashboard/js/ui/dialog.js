/** Questions before something is changed, and words after it. */

import { h, icon, put } from "../core/dom.js";

let numbers = 0;

/**
 * Ask, and do it. The dialog stays open while it is done and says what went wrong.
 *
 * @param {object} question
 * @param {string} question.title
 * @param {any[]} question.text paragraphs
 * @param {string} question.confirm what the button says
 * @param {boolean} [question.danger]
 * @param {{label: string, value?: string, hint?: string}} [question.field] one line of text
 * @param {string} [question.typed] must be typed before the button works
 * @param {(text: string) => Promise<string | void>} question.act gets the field's text
 * @returns {Promise<string | null>} what `act` answered ("" for nothing); null: it was cancelled
 */
export function ask({ title, text, confirm, danger = false, field, typed, act }) {
  const id = `dialog-${(numbers += 1)}`;
  const label = typed ? h("span", {}, "Type ", h("b", { class: "typed" }, typed), " to confirm")
    : field?.label;
  const input = h("input", {
    id: `${id}-input`, class: "input", type: "text", value: field?.value || "", maxlength: 255,
    autocomplete: "off", spellcheck: "false", autocapitalize: "off",
  });
  const trouble = h("p", { class: "form-error", role: "alert" });
  const yes = h("button", { class: `button ${danger ? "danger" : "primary"}`, type: "submit" }, confirm);
  const no = h("button", { class: "button", type: "button" }, "Cancel");
  yes.disabled = Boolean(typed);
  const form = h("form", { class: "dialog-form", novalidate: true },
    h("h2", { id: `${id}-title` }, title),
    text.map((each) => h("p", {}, each)),
    field || typed ? h("div", { class: "field" }, h("label", { for: `${id}-input` }, label), input,
      field?.hint ? h("small", {}, field.hint) : null) : null,
    trouble,
    h("div", { class: "dialog-buttons" }, no, yes));
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": `${id}-title` }, form);
  document.body.append(dialog);

  return new Promise((resolve) => {
    /** @type {string | null} */
    let result = null;
    let busy = false;
    input.addEventListener("input", () => {
      if (typed) yes.disabled = input.value !== typed;
    });
    no.addEventListener("click", () => dialog.close());
    dialog.addEventListener("cancel", (event) => busy && event.preventDefault());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (busy || yes.disabled) return;
      busy = true;
      yes.disabled = no.disabled = true;
      put(trouble);
      try {
        result = (await act(input.value)) || "";
        busy = false;
        dialog.close();
      } catch (error) {
        busy = false;
        yes.disabled = no.disabled = false;
        put(trouble, error instanceof Error ? error.message : String(error));
      }
    });
    dialog.showModal();
    (field || typed ? input : no).focus();
  });
}

/**
 * Say what was done, for some seconds.
 *
 * @param {string} text
 */
export function toast(text) {
  const place = document.getElementById("toasts");
  const note = h("div", { class: "toast" }, icon("check"), h("span", {}, text));
  place?.append(note);
  setTimeout(() => note.remove(), 6000);
}
