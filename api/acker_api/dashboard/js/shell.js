/** The frame of every view: banner, state of the connection, theme, session. */

import { LOGIN } from "./core/api.js";
import { foreign, h, icon, put, say } from "./core/dom.js";
import { connection, mode } from "./core/connection.js";
import { duration, moment } from "./core/format.js";
import { theme, turn } from "./core/theme.js";
import { leave, session } from "./data/session.js";
import { help } from "./keys.js";
import { searchForm } from "./ui/search-form.js";

const BACK_MS = 3000;
const TITLES = { service: "The service does not answer", redis: "Redis does not answer" };
const ADVICE = {
  service: "Is acker-redis serve running, and is the network up? The pipeline continues without it.",
  redis: ["Is Redis running and reachable? Until it answers, nothing is tracked, acked or reported. Check it: ", "redis-cli ping"],
};
const find = (id) => /** @type {any} */ (document.getElementById(id));

/** Begin. */
export function start() {
  themeSwitch();
  banner();
  pill();
  session.listeners.add(who);
  put(find("search-place"), searchForm());
  find("keys").addEventListener("click", () => void help());
  find("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part after the # is the place in the page, not an element
    find("main").focus();
  });
}

function themeSwitch() {
  const button = find("theme");
  button.addEventListener("click", turn);
  const draw = (now) => {
    put(button, icon(now === "dark" ? "sun" : "moon"));
    button.setAttribute("aria-label", now === "dark" ? "Use light colours" : "Use dark colours");
  };
  theme.listeners.add(draw);
  draw(theme.value);
}

/** Report within a second that a server is unavailable, and that it is back. No other place reports it. */
function banner() {
  const root = find("banner");
  let since = 0;
  let timer = 0;
  connection.listeners.add(({ state, since: began }) => {
    clearTimeout(timer);
    if (state === "service" || state === "redis") {
      since = since || began;
      root.className = "banner away";
      const [advice, command] = [ADVICE[state]].flat();
      put(root, icon("alert"), h("strong", {}, TITLES[state]), h("span", {}, `since ${moment(since)}. The figures on this page are older. `, advice,
        command ? h("code", { class: "command" }, command) : null));
      root.hidden = false;
    } else if (since) {
      root.className = "banner back";
      put(root, icon("check"), h("strong", {}, "Available again"), h("span", {}, `after ${duration(Date.now() - since)}`));
      since = 0;
      timer = window.setTimeout(() => { root.hidden = true; }, BACK_MS);
    }
  });
}

function pill() {
  const root = find("connection");
  const text = h("span", {}, "Connecting");
  put(root, h("i", { class: "dot" }), text);
  const draw = () => {
    const { state } = connection.value;
    const away = state === "service" || state === "redis";
    root.className = `connection ${away ? "over" : state}`;
    say(text, away || state === "quiet" ? "No updates"
      : state !== "ok" ? "Connecting" : mode.value === "events" ? "Live" : "Connected");
    root.title = mode.value === "events" ? "Updates arrive as events" : "Updates are polled every second";
    document.body.classList.toggle("away", away);
  };
  connection.listeners.add(draw);
  mode.listeners.add(draw);
}

function who({ role, who: name, needed }) {
  const root = find("session");
  put(root, needed ? [h("span", { class: "session-who", title: `Signed in as ${name}, with the role ${role}` },
    foreign(name), h("span", { class: "session-role" }, role)),
    h("button", { class: "button small leave", type: "button", "aria-label": "Sign out", title: `Sign out ${name}`,
      on: { click: () => leave().catch(() => location.assign(LOGIN)) } },
    icon("out"), h("span", {}, "Sign out"))] : null);
}
