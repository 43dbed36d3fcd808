// Adapters to the Redis clients of Node, chosen by their methods: ioredis (callBuffer) and node-redis
// (sendCommand), each of one server or of a cluster. Replies are Buffers.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { AckerError, isDemoted, refuse, translate } from './errors.js';

const BULK_STRING = 36; // RESP_TYPES.BLOB_STRING of node-redis

const nothing = () => {};

/**
 * Return the same two functions for every Redis client.
 * send: (key, [word, ..]) => reply.
 * leave: connect again, because the address may lead to another master by now. A cluster client
 * needs none: MOVED names the new master.
 */
function adapt(client) {
  if (typeof client?.callBuffer === 'function') {
    if (client.options?.keyPrefix) refuse('the client of ioredis must have no keyPrefix: it changes the keys of scripts');
    // Not callBuffer, which has no place in the pipelines of enableAutoPipelining. Builtin commands that
    // have no name are sent alone, and the rows of this client are batches already.
    const commands = new Map();
    const command = (name) => {
      if (!commands.has(name)) commands.set(name, client.createBuiltinCommand(name.toLowerCase()).buffer);
      return commands.get(name);
    };
    return {
      send: (key, [name, ...words]) => command(name).apply(client, words), // ioredis finds the key itself
      leave: client.isCluster ? nothing : () => client.status === 'ready' && client.disconnect(true),
    };
  }
  if (typeof client?.sendCommand !== 'function' || typeof client.withTypeMapping !== 'function') {
    return refuse('the client must be one of ioredis, or of redis (node-redis) from version 5');
  }
  const binary = client.withTypeMapping({ [BULK_STRING]: Buffer });
  // Only a cluster client has `masters`; it routes by the key that it is given.
  if (Array.isArray(client.masters)) {
    return { send: (key, words) => binary.sendCommand(key, false, words), leave: nothing };
  }
  let leaving = false;
  const leave = () => {
    if (leaving || !client.isReady) return;
    leaving = true;
    // Send QUIT as a plain command: the server closes the connection, and the client connects again.
    // The client's own quit() and destroy() would end the client for the program, too.
    const left = () => (leaving = false);
    client.sendCommand(['QUIT']).then(left, left);
  };
  return { send: (key, words) => binary.sendCommand(words), leave };
}

const scripts = new Map();

function script(name) {
  let found = scripts.get(name);
  if (!found) {
    const source = readFileSync(new URL(`lua/${name}.lua`, import.meta.url));
    found = { source, sha: createHash('sha1').update(source).digest('hex') };
    scripts.set(name, found);
  }
  return found;
}

/** Sends each call of a script once; throws AckerErrors. */
export class Connection {
  #send;
  #leave;
  #replyMs;

  constructor(client, replyMs) {
    ({ send: this.#send, leave: this.#leave } = adapt(client));
    this.#replyMs = replyMs;
  }

  /** Call a script on a shard's prefix. After UNAVAILABLE the script may have run. */
  async run(name, prefix, argv) {
    const { source, sha } = script(name);
    const rest = ['2', prefix, `${prefix}:meta`, ...argv];
    try {
      return await this.#ask(prefix, ['EVALSHA', sha, ...rest]);
    } catch (error) {
      if (!String(error?.message).startsWith('NOSCRIPT')) throw translate(error);
    }
    return this.command(prefix, 'EVAL', source, ...rest);
  }

  /** Send a plain command, routed by a key. */
  async command(key, ...words) {
    try {
      return await this.#ask(key, words);
    } catch (error) {
      throw translate(error);
    }
  }

  #ask(key, words) {
    return new Promise((resolve, reject) => {
      const late = () =>
        reject(new AckerError('UNAVAILABLE', `Redis did not answer within ${this.#replyMs} ms`));
      const timer = setTimeout(late, this.#replyMs);
      const done = (settle) => (what) => {
        clearTimeout(timer);
        settle(what);
      };
      const fail = (error) => {
        if (isDemoted(error)) this.#leave();
        reject(error);
      };
      Promise.resolve(this.#send(key, words)).then(done(resolve), done(fail));
    });
  }
}
