/**
 * Events of a namespace, or of the list of all: over the one connection that all windows share
 * (`worker.js`), or over a separate one where the browser has no SharedWorker.
 */

import { address, inNamespace } from "../core/api.js";

const WORKER = new URL("../worker.js", import.meta.url).href;
const KINDS = ["hello", "status", "namespaces", "problem", "outcome", "gap"];

/** @type {any} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("acker-worker", {
  createScriptURL(/** @type {string} */ url) {
    if (url !== WORKER) throw new TypeError(`not the worker: ${url}`);
    return url;
  },
});
let shares = "SharedWorker" in window;

/**
 * @typedef {object} Receiver
 * @property {(kind: string, data: string) => void} take
 * @property {(refused: boolean) => void} broke the stream has ended; if it was refused, it is not opened again
 */

/**
 * Open a stream.
 *
 * @param {string} namespace "" for the list of all
 * @param {Receiver} receiver
 * @returns {{close: () => void}}
 */
export function stream(namespace, receiver) {
  if (shares) {
    try {
      return shared(namespace, receiver);
    } catch {
      shares = false; // for example a policy of the browser
    }
  }
  return separate(namespace, receiver);
}

/** @param {string} namespace @param {Receiver} receiver */
function shared(namespace, receiver) {
  const worker = new SharedWorker(policy ? policy.createScriptURL(WORKER) : WORKER, "acker");
  const { port } = worker;
  let over = false;
  const close = () => {
    over = true;
    port.postMessage({ leave: true });
    port.close();
  };
  port.onmessage = ({ data }) => {
    if (over) return;
    if (data.ping) port.postMessage({ here: true });
    else if (data.broke) receiver.broke(data.refused);
    else receiver.take(data.kind, data.data);
  };
  worker.onerror = () => {
    shares = false; // the worker cannot be loaded: the next stream is a separate one
    if (!over) receiver.broke(true);
  };
  port.postMessage({ want: namespace });
  return { close };
}

/** @param {string} namespace @param {Receiver} receiver */
function separate(namespace, receiver) {
  const source = new EventSource(address(namespace ? inNamespace(namespace, "events") : "/events"));
  for (const kind of KINDS) source.addEventListener(kind, ({ data }) => receiver.take(kind, data));
  source.onerror = () => receiver.broke(source.readyState === EventSource.CLOSED);
  return { close: () => source.close() };
}
