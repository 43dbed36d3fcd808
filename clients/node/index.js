// Client of acker-redis for Node: tracks tuple trees, acks and fails messages, reads verdicts.
// See README.md. lua/README.md of the project describes the wire protocol and the retries.

import { randomBytes } from 'node:crypto';
import { emitWarning } from 'node:process';
import {
  Batch, FAIL, MAX_BUCKETS, MAX_SHARDS, MAX_TAKE, MIN_BUCKETS, Processing, TOUCH, checkAnchor, checkName, combine,
  newAnchor, shardOf, xorIds,
} from './batch.js';
import { AckerError, refuse } from './errors.js';
import { IdMaker } from './ids.js';
import { Connection } from './redis.js';

export { Batch, newAnchor, newIds } from './batch.js';
export { AckerError } from './errors.js';

const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 500;
const IDS_RETRY = 2_000; // ms until the next attempt to read edges and salt
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const noop = () => {};

/** A producer lane: a name that no other process has, increasing numbers, one call in flight. */
class Lane {
  #last = Promise.resolve();

  constructor() {
    this.begin();
  }

  begin() {
    this.name = randomBytes(16).toString('hex');
    this.seq = 0;
  }

  /** Run `work` after all earlier work of this lane. */
  exclusive(work) {
    const result = this.#last.then(work);
    this.#last = result.then(noop, noop);
    return result;
  }
}

/** The pauses between the attempts of one request. */
class Retries {
  #end;
  #pause = FIRST_PAUSE;

  constructor(ms) {
    this.#end = performance.now() + ms;
  }

  /** Wait, longer each time. Throw the error if a retry cannot help, or no time is left for one. */
  async after(error, patient = false) {
    const passes = error.code === 'UNAVAILABLE' || error.code === 'BACKLOG' || (patient && error.mayPass);
    const wait = this.#pause * (0.5 + Math.random() / 2);
    if (!passes || performance.now() + wait >= this.#end) throw error;
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
    await sleep(wait);
  }
}

/** One namespace. `client` is a connected client of ioredis or node-redis, of one server or a cluster. */
export class Acker {
  #connection;
  #namespace;
  #settings;
  #config = null;
  #ids = new IdMaker();
  #idsDue = 0; // when to try again to read edges and salt, after a first attempt
  #reading = null;
  #trying = null;
  #lane = new Lane();
  #slots = new Map();
  #waiting = 0;
  #error = null;
  #closed = false;

  constructor(client, namespace, settings = {}) {
    const { retryMs = 10_000, replyMs = 5_000, lingerMs = 2, buffer = 65_536, onGivenUp = null } = settings;
    this.#namespace = checkName('namespace', namespace);
    this.#settings = { retryMs, lingerMs, buffer, onGivenUp };
    this.#connection = new Connection(client, replyMs);
  }

  // Sources

  /**
   * Begin a tree. `emitted` is the number of its first messages, or their ids; `edge` is the edge that the
   * messages travel on. Resolves when the tree is applied, to its anchor and the texts to send with the
   * messages. If `rejected` is true, emit none.
   */
  async track({ task, sourceId, emitted = 1, edge = '' }) {
    const draws = typeof emitted === 'number';
    if (edge && !draws) refuse('ids that are given have their edge: draw them by newIds(count, edge)');
    // Only the first tree waits for the configuration, so that flush() includes every later one.
    if (draws && !this.#ids.known) await this.#readIds();
    let ids;
    do ids = draws ? this.#draw(emitted, edge) : [...emitted];
    while (xorIds(ids) === 0n && draws && emitted > 0); // a tree that is zero would be acked at once
    const anchor = newAnchor();
    const applied = await this.#put(anchor, task, (batch) => batch.track(anchor, sourceId, ids));
    return {
      anchor,
      ids: ids.map((id) => `${anchor}:${id}`),
      rejected: applied.rejected.includes(anchor),
    };
  }

  // Bolts

  /**
   * Begin to process messages, given by their ids as text: one, or several together for a join. If Redis does
   * not answer, edges and salt are unknown: emit() then draws ids without an edge, and refuses a key.
   */
  async process(...inputs) {
    const processing = new Processing((rows) => this.add(rows), inputs, this.#ids);
    if (!this.#ids.known) await this.#tryIds();
    return processing;
  }

  /** Ack a processed message. Resolves when the row is applied, like the methods below. */
  ack(anchor, tuple, emitted = []) {
    return this.#put(anchor, '', (batch) => batch.ack(anchor, tuple, emitted));
  }

  fail(anchor, why = '', tuple = undefined, emitted = []) {
    return this.#put(anchor, '', (batch) => batch.fail(anchor, why, tuple, emitted));
  }

  touch(anchor) {
    return this.#put(anchor, '', (batch) => batch.touch(anchor));
  }

  /** Send whole rows, `{anchor, delta, flags, why}`. */
  add(rows) {
    const done = rows.map((row) =>
      this.#put(row.anchor, '', (batch) => batch.add(row.anchor, row.delta, row.flags & (FAIL | TOUCH), row.why)),
    );
    if (done.length === 1) return done[0];
    return handled(Promise.all(done).then(noop));
  }

  /**
   * Wait until all accepted rows are applied. Throws the first error since the last flush, or the first
   * error of the batches that it waited for. Concurrent flushes are all notified of it.
   */
  async flush() {
    if (this.#reading) await this.#reading.then(noop, noop); // trees that wait for it come first
    const slots = [...this.#slots.values()];
    const all = slots.flatMap(promises);
    for (const slot of slots) {
      slot.hurry = true;
      this.#kick(slot);
    }
    const ended = await Promise.allSettled(all);
    const error = this.#error ?? ended.find(({ status }) => status === 'rejected')?.reason;
    this.#error = null;
    if (error) throw error;
  }

  /** Flush, and accept no more rows. The Redis client stays open. */
  async close() {
    if (this.#reading) await this.#reading.then(noop, noop);
    this.#closed = true;
    await this.flush();
  }

  // Outcomes

  /**
   * Yield the verdicts of a task. An entry is taken when all its outcomes were handled and the next
   * one is requested. Ends when no outcome waits; with `follow`, when `signal` is aborted.
   */
  async *outcomes(task, { follow = false, pollMs = 50, signal } = {}) {
    while (!signal?.aborted) {
      const entries = await this.read(task);
      for (const entry of entries) {
        yield* entry.outcomes;
        await this.take(task, [entry]);
      }
      if (entries.length) continue;
      if (!follow) return;
      await sleep(pollMs);
    }
  }

  /** Read the waiting entries, up to `count` a shard, oldest first; they are read again until taken. */
  async read(task, count = MAX_TAKE) {
    checkName('task', task);
    let { shards } = await this.config();
    for (;;) {
      const reads = Array.from({ length: shards }, (_, shard) => {
        const stream = `${this.#prefix(shard)}:outcomes:${task}`;
        return this.#connection.command(stream, 'XRANGE', stream, '-', '+', 'COUNT', String(count));
      });
      const meta = `${this.#prefix(0)}:meta`;
      const [now, ...replies] = await Promise.all([this.#connection.command(meta, 'HGET', meta, 'shards'), ...reads]);
      // A deleted stream reads like an empty one, so check that the number of shards is still the same.
      const current = now === null ? shards : this.#shardsOf(now);
      if (current === shards) {
        return replies.flatMap((entries, shard) => entries.map((entry) => parseEntry(shard, entry, this.#ids)));
      }
      shards = current;
    }
  }

  /** Delete handled entries; resolves to the number of verdicts that they held. */
  async take(task, entries) {
    const ids = new Map();
    for (const { shard, id } of entries) ids.set(shard, [...(ids.get(shard) ?? []), id]);
    let taken = 0;
    for (const [shard, list] of ids) {
      for (let rest = list; rest.length; ) {
        const reply = await this.#connection.run('take', this.#prefix(shard), [task, ...rest.slice(0, MAX_TAKE)]);
        taken += Number(reply[1]);
        rest = rest.slice(Number(reply[3]));
      }
    }
    return taken;
  }

  // Batches

  /** Apply a batch that you filled. After an error with code UNAVAILABLE or BACKLOG, apply it again or drop it. */
  apply(batch) {
    return this.#lane.exclusive(() => this.#deliver(batch, this.#lane));
  }

  get namespace() {
    return this.#namespace;
  }

  /** Read the number of shards, for how many ms a fence holds, and the names of the edges. */
  async config() {
    return this.#config ?? this.#readConfig();
  }

  /** Draw tuple ids of messages on an edge, for a batch that you fill. */
  async newIds(count, edge = '') {
    if (!this.#ids.known) await this.#readIds();
    return this.#draw(count, edge);
  }

  #draw(count, edge) {
    const code = this.#ids.code(edge);
    const ids = this.#ids.draw(count);
    return code ? ids.map((id) => id | code) : ids;
  }

  /** Read the configuration, which the first ids need; retried like a batch. */
  #readIds() {
    const read = async () => {
      for (const retries = new Retries(this.#settings.retryMs); ; ) {
        try {
          return await this.#readConfig();
        } catch (error) {
          await retries.after(error);
        }
      }
    };
    const done = () => (this.#reading = null);
    if (!this.#reading) {
      this.#reading = read();
      this.#reading.then(done, done);
    }
    return this.#reading;
  }

  /** Read the configuration once, if it is due. While Redis does not answer, messages do not wait for each attempt. */
  #tryIds() {
    this.#trying ??= this.#tryOnce().finally(() => (this.#trying = null));
    return this.#trying;
  }

  async #tryOnce() {
    const begun = performance.now();
    if (begun < this.#idsDue) return;
    try {
      await this.#readConfig();
    } catch (error) {
      if (error.code !== 'UNAVAILABLE') throw error;
      const now = performance.now();
      if (!this.#idsDue) {
        emitWarning(`${this.#namespace}: messages that are emitted now carry no edge, because edges and salt could ` +
          `not be read; a verdict cannot tell on which edge one is lost: ${error.message}`, 'AckerWarning');
      }
      this.#idsDue = now + Math.max(IDS_RETRY, 10 * (now - begun));
    }
  }

  #prefix(shard) {
    return `acker:{${this.#namespace}:${shard}}`;
  }

  async #readConfig() {
    const reply = await this.#connection.run('status', this.#prefix(0), []);
    const meta = new Map();
    for (let i = 0; i < reply[5].length; i += 2) meta.set(String(reply[5][i]), String(reply[5][i + 1]));
    const edges = (meta.get('edges') ?? '').split(',').filter(Boolean);
    const salt = meta.get('salt') ?? '';
    const [shards, buckets, tickMs] = ['shards', 'buckets', 'tick_ms'].map((field) => meta.get(field));
    const isRing = /^[1-9][0-9]?$/.test(buckets) && buckets >= MIN_BUCKETS && buckets <= MAX_BUCKETS
      && /^[1-9][0-9]{0,12}$/.test(tickMs);
    if (!isRing || !/^[0-9a-f]{32}$/.test(salt)) throw this.#tampered();
    const known = this.#shardsOf(shards);
    this.#ids.configure(edges, salt);
    this.#config = {
      edges,
      shards: known,
      fenceMs: (Number(buckets) - 1) * Number(tickMs),
      reshard: Boolean(meta.get('reshard')),
    };
    return this.#config;
  }

  /** Return a number of shards that Redis holds: a power of two up to MAX_SHARDS. */
  #shardsOf(text) {
    const shards = /^[1-9][0-9]{0,3}$/.test(text) ? Number(text) : 0;
    if (shards < 1 || shards > MAX_SHARDS || shards & (shards - 1)) throw this.#tampered();
    return shards;
  }

  #tampered() {
    return new AckerError('SCHEMA', `${this.#prefix(0)}:meta has been tampered with`);
  }

  /** Add a row to the batch of its anchor's shard. Resolves when the batch is applied. */
  #put(anchor, task, fold) {
    if (this.#closed) {
      return handled(Promise.reject(new AckerError('CLOSED', 'this acker is closed and takes no more rows')));
    }
    if (this.#waiting >= this.#settings.buffer) {
      const words = `${this.#waiting} rows wait for Redis, and there is no room for another: Redis is too slow ` +
        'for this program, or unreachable';
      return this.#refused(new AckerError('FULL', words), anchor);
    }
    const shards = this.#config?.shards ?? 1;
    const key = `${shardOf(checkAnchor(anchor), shards)} ${task}`;
    let slot = this.#slots.get(key);
    if (!slot) {
      slot = { task, lane: new Lane(), open: null, ready: [], sending: null, timer: null, hurry: false };
      this.#slots.set(key, slot);
    }
    let { open } = slot;
    if (!open || open.batch.full || (task && open.batch.tracks(anchor))) {
      if (open) slot.ready.push(open);
      open = slot.open = pending(task);
    }
    const before = open.batch.size;
    fold(open.batch);
    this.#waiting += open.batch.size - before;
    if (open.batch.full || this.#settings.lingerMs === 0 || slot.hurry) this.#kick(slot);
    else if (!slot.timer && !slot.sending) {
      slot.timer = setTimeout(() => {
        slot.timer = null;
        slot.hurry = true;
        this.#kick(slot);
      }, this.#settings.lingerMs);
    }
    return open.done;
  }

  /** Send the next batch of a slot, unless one is in flight. */
  #kick(slot) {
    if (slot.sending) return;
    let next = slot.ready.shift();
    if (!next && slot.open && (slot.hurry || slot.open.batch.full || this.#settings.lingerMs === 0)) {
      next = slot.open;
      slot.open = null;
    }
    if (!next) {
      slot.hurry = false;
      return;
    }
    if (!slot.open) {
      clearTimeout(slot.timer);
      slot.timer = null;
      if (!slot.ready.length) slot.hurry = false;
    }
    slot.sending = next;
    const delivery = slot.lane.exclusive(() => this.#deliver(next.batch, slot.lane));
    delivery.then(next.resolve, (error) => {
      this.#error ??= error;
      this.#report(error, next.batch.anchors);
      next.reject(error);
    }).finally(() => {
      this.#waiting -= next.batch.size;
      slot.sending = null;
      if (slot.open && !slot.timer) slot.hurry = true; // its linger time has passed
      this.#kick(slot);
    });
  }

  #refused(error, anchor) {
    this.#error ??= error;
    this.#report(error, [anchor]);
    return handled(Promise.reject(error));
  }

  #report(error, anchors) {
    try {
      this.#settings.onGivenUp?.(error, anchors);
    } catch {
      // An error of the callback must not stop the sending of the remaining rows.
    }
  }

  /** Apply a batch; retry until it is answered or may not be sent again. */
  async #deliver(batch, lane) {
    for (const retries = new Retries(this.#settings.retryMs); ; ) {
      try {
        return await this.#attempt(batch, lane);
      } catch (error) {
        if (error.code === 'SHARD' || error.code === 'NAMESPACE') {
          this.#config = null;
          if (batch.sent && !surelyRefused(batch.sent)) {
            throw new AckerError(error.code, `${error.message}. A part of this batch may have been applied before, ` +
              'so the rest cannot be sent to other shards: give it up. Its trees expire; track those again that ' +
              'get no verdict');
          }
          const before = batch.sent;
          batch.sent = null;
          if (!before) throw error;
          const { shards, reshard } = await this.#readConfig();
          if (shards !== before.shards) continue; // repack the batch for the new number of shards
          if (!reshard) throw error;
          error = new AckerError('BACKLOG', `${this.#namespace} is resharding, nothing is tracked; try again`);
        }
        if (error.code === 'LANE' || error.code === 'CONFLICT') lane.begin(); // never reuse this lane
        // A password that was never right is no refusal that may pass. Trees to be tracked do not wait for
        // memory: they would hold up rows that free some.
        await retries.after(error, batch.sent && !(error.full && batch.onlyTracks));
      }
    }
  }

  async #attempt(batch, lane) {
    if (batch.sent) checkFence(batch.sent, Math.min(...batch.sent.times.values()));
    // The current configuration says for how long the fence holds.
    const config = batch.sent ? await this.#readConfig() : await this.config();
    const sent = (batch.sent ??= seal(batch, lane, config));
    sent.fenceMs = Math.min(sent.fenceMs, config.fenceMs);
    for (let i = 0; i < sent.parts.length; i++) {
      if (!sent.replies.has(i)) sent.replies.set(i, await this.#call(sent, i));
    }
    return combine(sent.parts, sent.replies);
  }

  /** Send one call once, unless its fence may have expired. */
  async #call(sent, i) {
    const part = sent.parts[i];
    const first = sent.times.get(i) ?? performance.now();
    sent.times.set(i, first);
    checkFence(sent, first);
    const again = sent.doubt.has(i);
    sent.doubt.add(i);
    const seq = sent.seq + i;
    const digest = sent.digest ?? part.digest;
    const fence = sent.lane === '' ? '' : digest ? `${seq}:${digest}` : String(seq);
    let reply;
    try {
      reply = part.read(await this.#connection.run(part.script, this.#prefix(part.shard), [sent.lane, fence, ...part.argv]));
    } catch (error) {
      const certain = error.code === 'REDIS' ? error.mayPass : error.code !== 'UNAVAILABLE';
      if (!again && certain) sent.doubt.delete(i);
      throw error;
    }
    if (reply.highest !== null && reply.highest > seq) {
      throw new AckerError('LANE', `lane ${sent.lane} is at ${reply.highest}, this batch is ${seq}: a later batch, ` +
        'or another process, has used the lane; this batch is not applied again');
    }
    return reply;
  }

  /** Apply a batch once, under a given lane. Only for the cases of the project. */
  async _applyAs(batch, lane, seq, digest) {
    const config = await this.config();
    batch.sent = { ...seal(batch, { name: lane, seq: seq - 1 }, config), digest };
    return this.#attempt(batch, null);
  }
}

/** Pack a batch for sending: every retry sends the same bytes under the same numbers. */
function seal(batch, lane, { shards }) {
  const parts = batch.parts(shards);
  const seq = lane.seq + 1;
  lane.seq += parts.length;
  return {
    lane: lane.name, seq, shards, parts, fenceMs: Infinity,
    times: new Map(), replies: new Map(), doubt: new Set(),
  };
}

/** Throw an error with code LATE if a batch that was first sent at `first` may not be sent again. */
function checkFence(sent, first) {
  if (performance.now() > first + sent.fenceMs) {
    throw new AckerError('LATE', 'this batch was first sent too long ago to be sent again: its fence may have ' +
      'expired; let its trees expire');
  }
}

const surelyRefused = (sent) => !sent.doubt.size && !sent.replies.size;

function pending(task) {
  const one = { batch: new Batch(task) };
  one.done = new Promise((resolve, reject) => Object.assign(one, { resolve, reject }));
  handled(one.done);
  return one;
}

const promises = ({ open, ready, sending }) => [open, ...ready, sending].filter(Boolean).map(({ done }) => done);

/** Prevent an unhandled rejection: flush() and onGivenUp report the error, too. */
function handled(promise) {
  promise.catch(noop);
  return promise;
}

// Replies

const notExpired = () => ({ cause: '', residual: 0n, idleMs: 0, edges: [] });

/** Return the fields of an outcome that describe an expired tree. `residual` is hex. */
function expiry(cause, residual, idleMs, ids) {
  const checksum = BigInt(`0x${residual}`);
  return { cause, residual: checksum, idleMs, edges: ids.edgesOf(checksum) };
}

function parseEntry(shard, [id, flat], ids) {
  const fields = new Map();
  for (let i = 0; i < flat.length; i += 2) fields.set(String(flat[i]), String(flat[i + 1]));
  const verdict = fields.get('verdict');
  const reason = fields.get('reason');
  const one = ([anchor, sourceId, ageMs, text, residual, idleMs]) => ({
    verdict, reason, anchor: BigInt(`0x${anchor}`), sourceId, ageMs,
    ...(residual === undefined ? { why: text, ...notExpired() } : { why: '', ...expiry(text, residual, idleMs, ids) }),
  });
  const outcomes = fields.has('block')
    ? blockOutcomes(verdict, reason, fields, ids)
    : JSON.parse(fields.get('rows')).map(one);
  if (outcomes.length !== Number(fields.get('n'))) {
    throw malformed(`entry ${id} holds ${outcomes.length} verdicts, not ${fields.get('n')}`);
  }
  return { shard, id: String(id), outcomes };
}

const malformed = (words) => new AckerError('SCHEMA', `${words}: another version wrote it, or it was tampered with`);

/** Return the slots of a bitmap in hex: bit 7 of byte 0 is slot 0. Throws SCHEMA if it is malformed. */
function slotsOf(name, hex, count) {
  if (!/^[0-9a-f]+$/.test(hex) || hex.length !== 2 * Math.ceil(count / 8)) {
    throw malformed(`bitmap ${name} of a block of ${count} slots is '${String(hex).slice(0, 40)}'`);
  }
  const slots = new Set();
  for (let slot = 0; slot < 4 * hex.length; slot++) {
    if (!(parseInt(hex[slot >> 2], 16) & (8 >> (slot & 3)))) continue;
    if (slot >= count) throw malformed(`bitmap ${name} of a block of ${count} slots has slot ${slot}`);
    slots.add(slot);
  }
  return slots;
}

/** Return the verdicts of a block's entry by slot; the source id of each is the block's label. */
function blockOutcomes(verdict, reason, fields, ids) {
  const base = (1n << 62n) | (BigInt(`0x${fields.get('block')}`) << 12n);
  const sourceId = fields.get('label');
  const ageMs = Number(fields.get('age'));
  const one = (slot, said, because, why = '', more = notExpired()) => (
    { verdict: said, reason: because, anchor: base | BigInt(slot), sourceId, ageMs, why, ...more });
  if (fields.has('rows')) return JSON.parse(fields.get('rows')).map(([slot, why]) => one(slot, verdict, reason, why));
  const slots = Number(fields.get('slots'));
  const bitmap = (name) => slotsOf(name, fields.get(name), slots);
  const failed = fields.get('failed') ? bitmap('failed') : new Set();
  const present = fields.has('present') ? bitmap('present') : null;
  const nacked = verdict === 'mixed' ? [...bitmap('nacked')] : [];
  const hex = fields.get('residuals') ?? '';
  if (hex.length !== 16 * nacked.length) throw malformed(`${nacked.length} trees expired, with residuals '${hex.slice(0, 40)}'`);
  const residuals = new Map(nacked.map((slot, k) => [slot, hex.slice(16 * k, 16 * k + 16)]));
  const found = [];
  for (let slot = 0; slot < slots; slot++) {
    if (failed.has(slot) || (present && !present.has(slot))) continue;
    if (verdict !== 'mixed') found.push(one(slot, verdict, reason));
    else if (residuals.has(slot)) {
      const more = expiry(fields.get('cause'), residuals.get(slot), Number(fields.get('idle')), ids);
      found.push(one(slot, 'nack', 'expired', '', more));
    }
    else found.push(one(slot, 'ack', 'completed'));
  }
  return found;
}
