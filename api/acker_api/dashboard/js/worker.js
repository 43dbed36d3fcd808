/**
 * The one connection of a browser for events: a SharedWorker that all windows use. Browsers allow six
 * connections to a server by HTTP/1.1, and without it each window would keep one. The stream has the
 * events of all namespaces that some window shows; when these change, it is opened again, and resumes
 * after the last event of each namespace.
 *
 * A window sends `{want: name}`, "" for the list of all namespaces, and `{here: true}` as the answer to
 * `{ping: true}`. It gets `{kind, data}`, and `{broke: true, refused}` when the stream has ended.
 */
(() => {
  /** This script is in the folder static/VERSION/js of the service. */
  const EVENTS = new URL("../../../api/v1/events", self.location.href).href;
  const KINDS = ["hello", "status", "namespaces", "problem", "outcome", "gap"];
  /** States: a window that comes later gets the last one at once. */
  const STATES = ["hello", "status", "namespaces", "problem"];
  /** The service sends the events of so many namespaces at most; other windows poll. */
  const MOST = 32;
  /** One change of the page ends a wish and begins another one. */
  const SOON_MS = 30;
  const AGAIN_MS = 1000;
  const PING_MS = 20_000;
  /** A window that has not answered for so long has crashed. */
  const LOST_MS = 90_000;

  /** @type {Map<MessagePort, {want: string | null, heard: number}>} */
  const windows = new Map();
  /** The id of the last event, by namespace. @type {Map<string, string>} */
  const ids = new Map();
  /** The last states, by namespace and kind. @type {Map<string, Map<string, string>>} */
  const states = new Map();
  /** @type {EventSource | null} */
  let source = null;
  let opened = "";
  let timer = 0;

  /** @param {MessagePort} port */
  function welcome(port) {
    windows.set(port, { want: null, heard: Date.now() });
    port.onmessage = ({ data }) => {
      const window = windows.get(port);
      if (!window) return;
      window.heard = Date.now();
      if (data.leave) {
        windows.delete(port);
        port.close();
        soon();
      } else if (data.want !== undefined) {
        window.want = data.want;
        for (const [kind, text] of states.get(data.want) || []) port.postMessage({ kind, data: text });
        soon();
      }
    };
  }

  function soon(ms = SOON_MS) {
    clearTimeout(timer);
    timer = setTimeout(open, ms);
  }

  function open() {
    const wanted = [...new Set([...windows.values()].map(({ want }) => want).filter((want) => want !== null))].sort();
    const names = wanted.filter(Boolean).slice(0, MOST);
    const key = wanted.join(" ");
    if (source && key === opened) return;
    close();
    for (const kept of [ids, states]) for (const name of kept.keys()) if (!wanted.includes(name)) kept.delete(name);
    if (!wanted.length) return;
    opened = key;
    const query = new URLSearchParams({ overview: String(wanted.includes("")) });
    for (const name of names) query.append("namespace", ids.has(name) ? `${name}@${ids.get(name)}` : name);
    const mine = new EventSource(`${EVENTS}?${query}`);
    source = mine;
    for (const name of wanted.includes("") ? ["", ...names] : names) {
      for (const kind of KINDS) mine.addEventListener(name ? `${kind} ${name}` : kind, (event) => take(name, kind, event));
    }
    mine.onerror = () => {
      if (mine !== source) return;
      const refused = mine.readyState === EventSource.CLOSED;
      close();
      states.clear();
      for (const [port, { want }] of windows) if (want !== null) port.postMessage({ broke: true, refused });
      // Windows ask again after a refusal; another end is an outage, or a service that restarts.
      if (!refused) soon(AGAIN_MS);
    };
  }

  function close() {
    source?.close();
    source = null;
    opened = "";
  }

  /** @param {string} name @param {string} kind @param {MessageEvent} event */
  function take(name, kind, { data, lastEventId }) {
    // Other events have no id, and would have the last one of another namespace.
    if (name && ["hello", "outcome", "gap"].includes(kind) && lastEventId) ids.set(name, lastEventId);
    if (STATES.includes(kind)) {
      const known = states.get(name) || new Map();
      states.set(name, known);
      if (kind !== "hello") for (const other of ["status", "namespaces", "problem"]) known.delete(other);
      known.set(kind, data);
    }
    for (const [port, { want }] of windows) if (want === name) port.postMessage({ kind, data });
  }

  setInterval(() => {
    for (const [port, { heard }] of windows) {
      if (Date.now() - heard > LOST_MS) windows.delete(port);
      else port.postMessage({ ping: true });
    }
    soon();
  }, PING_MS);

  self.addEventListener("connect", (event) => welcome(/** @type {MessageEvent} */ (event).ports[0]));
})();
