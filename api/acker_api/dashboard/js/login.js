/** The login page: a token becomes a cookie that scripts cannot read. */

import { ApiError, change, fromLogin } from "./core/api.js";
import { say } from "./core/dom.js";
import * as theme from "./core/theme.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("login"));
const input = /** @type {HTMLInputElement} */ (document.getElementById("token"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("enter"));
const trouble = /** @type {HTMLElement} */ (document.getElementById("trouble"));

theme.start();
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = input.value.trim();
  if (!token) {
    say(trouble, "Enter a token.");
    input.focus();
    return;
  }
  button.disabled = true;
  say(trouble, "");
  try {
    await change("POST", "/session", { token });
    location.replace(fromLogin());
  } catch (error) {
    const known = error instanceof ApiError ? error : null;
    say(trouble, known?.status === 401 || known?.status === 403 ? "Nobody has this token."
      : known ? `${known.title}: ${known.message}` : String(error));
    button.disabled = false;
    input.select();
  }
});
// Only now: sent before, the form would go by itself, and the token with it.
button.disabled = false;
