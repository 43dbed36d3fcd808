/** The login page: it exchanges a token for a cookie that scripts cannot read. */

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
    say(trouble, known?.status === 401 || known?.status === 403 ? "This token is not valid here."
      : known ? `${known.title}: ${known.message}` : String(error));
    button.disabled = false;
    input.select();
  }
});
// Enabled only now: without this script, the browser would submit the form, and with it the token.
button.disabled = false;
