// Ids, rows, batches, and their bytes on the wire. No I/O. The wire protocol: lua/README.md.

import { createHash, randomFillSync } from 'node:crypto';
import { AckerError, refuse } from './errors.js';

// From lua/spec.json, by python -m proof.spec
export const TRACK = 1;
export const FAIL = 2;
export const TOUCH = 4;
export const MAX_ROWS = 1024;
/** Maximum bytes of all source ids and whys of a batch. */
export const MAX_TEXTS = 64 * 1024;
const MAX_TEXT = 255;
const MAX_SLOTS = 4095;
const MAX_BLOCKS = 64;
const MAX_MESSAGE = 65536;
export const MAX_SHARDS = 1024;
export const MIN_BUCKETS = 2;
export const MAX_BUCKETS = 16;
export const MAX_TAKE = 64;

const ANCHOR_MAX = 2n ** 62n - 1n;
export const TUPLE_MAX = 2n ** 63n - 1n;
const BLOCK_MAX = 2n ** 50n - 1n;
const EMPTY = Buffer.alloc(0);

// Ids

/** Return `count` tuple ids, 1 .. 2^63-1, each from the system's random source. */
export function newIds(count, max = TUPLE_MAX) {
  // No pool: a snapshot of the machine would repeat its ids.
  const drawn = randomFillSync(new BigUint64Array(count));
  const ids = new Array(count);
  for (let i = 0; i < count; i++) ids[i] = drawn[i] & max || newIds(1, max)[0];
  return ids;
}

/** Return the anchor of a loose tree, 1 .. 2^62-1. */
export function newAnchor() {
  return newIds(1, ANCHOR_MAX)[0];
}

/** Return the shard of an anchor; all anchors of a block have one shard. `shards` is a power of two. */
export function shardOf(anchor, shards) {
  if (shards === 1) return 0;
  const low = anchor > ANCHOR_MAX ? (anchor >> 12n) & 0xffffffffn : anchor & 0xffffffffn;
  return Number(low) & (shards - 1);
}

const isId = (id, max) => typeof id === 'bigint' && id >= 1n && id <= max;

export function checkAnchor(anchor) {
  if (isId(anchor, ANCHOR_MAX)) return anchor;
  if (!isId(anchor, TUPLE_MAX) || (anchor & 0xfffn) === 0xfffn) {
    refuse(`an anchor is a BigInt from 1 to 2^62-1, or the anchor of a block's tree, not ${anchor}`);
  }
  return anchor;
}

function checkTuple(id) {
  if (!isId(id, TUPLE_MAX)) refuse(`a tuple id is a BigInt from 1 to 2^63-1, not ${id}`);
  return id;
}

/** Return the XOR of distinct tuple ids; two messages with the same id would cancel. */
export function xorIds(ids) {
  let delta = 0n;
  const list = Array.isArray(ids) ? ids : [...ids];
  for (const id of list) delta ^= checkTuple(id);
  if (list.length > 1 && new Set(list).size !== list.length) {
    refuse('two messages have the same tuple id; draw an id for each');
  }
  return delta;
}

/** Return the delta of a processed message: its id XOR the ids of all messages it caused. */
function whole(tuple, emitted) {
  checkTuple(tuple);
  if (emitted.length === 0) return tuple;
  const list = [...emitted];
  if (list.includes(tuple)) {
    refuse('a message and one that it caused have the same id; draw another');
  }
  return tuple ^ xorIds(list);
}

export function checkName(kind, name) {
  if (typeof name !== 'string' || !/^[A-Za-z0-9_.-]{1,64}$/.test(name)) {
    refuse(`a ${kind} is 1 to 64 characters of A-Z a-z 0-9 _ . -, not ${JSON.stringify(name)}`);
  }
  return name;
}

// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f]/;

function checkText(kind, text, least) {
  if (typeof text !== 'string' || !text.isWellFormed()) {
    refuse(`a ${kind} is text that UTF-8 can encode`);
  }
  const data = Buffer.from(text);
  if (data.length < least || data.length > MAX_TEXT) {
    refuse(`a ${kind} has ${least} to ${MAX_TEXT} bytes, this one ${data.length}`);
  }
  if (CONTROL.test(text)) refuse(`a ${kind} must not contain control characters`);
  return data;
}

/** Return an error as text; of an AggregateError, the first three errors in it. */
function said(words) {
  if (words instanceof AggregateError && words.errors.length) {
    const [all, first] = [words.errors.length, words.errors.slice(0, 3).map(said)];
    return (all > 3 ? [...first, `and ${all - 3} more`] : first).join('; ');
  }
  return String(words instanceof Error ? `${words.name}: ${words.message}` : words);
}

/** Return an error or text as a why: cut to 255 bytes, with control characters replaced. */
export function clip(words) {
  const text = said(words)
    .toWellFormed()
    // eslint-disable-next-line no-control-regex
    .replace(/[\x00-\x1f\x7f]/g, ' ');
  if (Buffer.byteLength(text) <= MAX_TEXT) return text;
  let short = '';
  let left = MAX_TEXT;
  for (const char of text) {
    left -= Buffer.byteLength(char);
    if (left < 0) break;
    short += char;
  }
  return short;
}

// Messages

/** Return the ids of a message by anchor, parsed from `<anchor>:<tuple>`, joined by commas. */
export function parseMessage(text) {
  const ids = new Map();
  if (typeof text !== 'string') refuse(`a message id is text, not ${typeof text}`);
  if (text.length > MAX_MESSAGE) refuse(`the text of a message id has at most ${MAX_MESSAGE} characters`);
  if (text.trim() === '') return ids;
  for (const pair of text.split(',')) {
    const match = /^[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*$/.exec(pair);
    if (!match) {
      // Errors reach logs, and an id is enough to ack its message.
      const shape = pair.slice(0, 50).replace(/[0-9]/g, '#');
      refuse(`an anchored tuple is <anchor>:<tuple>, not ${JSON.stringify(shape)}`);
    }
    const anchor = checkAnchor(BigInt(match[1]));
    if (ids.has(anchor)) refuse(`anchor ${anchor} occurs twice in one message id`);
    ids.set(anchor, checkTuple(BigInt(match[2])));
  }
  return ids;
}

/** Return the text of a message's ids, ordered by anchor. */
export function formatMessage(ids) {
  if (ids.size === 1) {
    for (const [anchor, id] of ids) return `${anchor}:${id}`;
  }
  return [...ids]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([anchor, id]) => `${anchor}:${id}`)
    .join(',');
}

// Batches

class Row {
  constructor(anchor) {
    this.anchor = anchor;
    this.delta = 0n;
    this.flags = 0;
    this.source = EMPTY;
    this.why = EMPTY;
  }
}

/**
 * Rows folded per anchor; at most 1024 anchors and 64 KiB of texts. Each method throws an error with code REFUSED
 * for invalid input, and leaves the batch unchanged.
 */
export class Batch {
  #rows = new Map();
  #texts = 0;

  constructor(task = '') {
    this.task = task ? checkName('task', task) : '';
    /** The packed calls and their replies; while it is set, the batch accepts no rows. */
    this.sent = null;
  }

  /** Number of rows after folding. */
  get size() {
    return this.#rows.size;
  }

  get empty() {
    return this.#rows.size === 0;
  }

  /** Whether another row might not fit. */
  get full() {
    return this.#rows.size >= MAX_ROWS || this.#texts > MAX_TEXTS - MAX_TEXT;
  }

  /** Whether each row begins a tree. */
  get onlyTracks() {
    return [...this.#rows.values()].every(({ flags }) => flags & TRACK);
  }

  /** Return whether this batch tracks a tree of this anchor. */
  tracks(anchor) {
    return ((this.#rows.get(anchor)?.flags ?? 0) & TRACK) !== 0;
  }

  /** Anchors of the rows. */
  get anchors() {
    return [...this.#rows.keys()];
  }

  /** Begin a tree, with the source's id for it and the ids of all its first messages. */
  track(anchor, sourceId, emitted) {
    this.#needsTask();
    const text = checkText('source id', sourceId, 1);
    if (checkAnchor(anchor) > ANCHOR_MAX) {
      refuse(`anchor ${anchor} is in a block; this client tracks no blocks`);
    }
    if (this.tracks(anchor)) refuse(`anchor ${anchor} is tracked twice; draw a new anchor for each attempt`);
    this.#fold(anchor, xorIds(emitted), TRACK, text).source = text;
  }

  /** Ack a processed message; `emitted` are the ids of all messages that it caused. */
  ack(anchor, tuple, emitted = []) {
    this.#fold(anchor, whole(tuple, emitted), 0, EMPTY);
  }

  /** Fail a tree. With `tuple` and `emitted` the message also counts as processed. */
  fail(anchor, why = '', tuple = undefined, emitted = []) {
    let text = checkText('why', why, 0);
    const delta = tuple === undefined ? xorIds(emitted) : whole(tuple, emitted);
    if (this.#rows.get(checkAnchor(anchor))?.why.length) text = EMPTY; // the first why wins
    const row = this.#fold(anchor, delta, FAIL, text);
    if (text.length) row.why = text;
  }

  /** Reset the timeout of a tree. */
  touch(anchor) {
    this.#fold(anchor, 0n, TOUCH, EMPTY);
  }

  /** Fold in a whole row: the delta of a message, and FAIL or TOUCH. */
  add(anchor, delta, flags = 0, why = '') {
    if (delta !== 0n && !isId(delta, TUPLE_MAX)) refuse(`a delta is a BigInt from 0 to 2^63-1, not ${delta}`);
    const text = flags & FAIL && !this.#rows.get(anchor)?.why.length ? checkText('why', why, 0) : EMPTY;
    const row = this.#fold(anchor, delta, flags, text);
    if (text.length) row.why = text;
  }

  /** Return the calls to send: the loose rows of each shard, then those of trees in blocks. */
  parts(shards) {
    const parts = [];
    const loose = new Map();
    const blocks = new Map();
    for (const row of this.#rows.values()) {
      if (row.anchor > ANCHOR_MAX) into(blocks, (row.anchor >> 12n) & BLOCK_MAX, row);
      else into(loose, shardOf(row.anchor, shards), row);
    }
    for (const [shard, rows] of loose) parts.push(packLoose(shard, rows, this.task));
    const packed = new Map();
    for (const [number, rows] of blocks) {
      into(packed, Number(number & BigInt(shards - 1)), packBlock(number, rows));
    }
    for (const [shard, its] of packed) {
      // The limits of a batch imply the other limits of a call.
      for (let i = 0; i < its.length; i += MAX_BLOCKS) {
        parts.push(new Part('apply_blocks', shard, its.slice(i, i + MAX_BLOCKS).flat()));
      }
    }
    return parts;
  }

  #needsTask() {
    if (!this.task) refuse('a TRACK row needs a source: use new Batch(task)');
  }

  #room(rows, texts) {
    if (this.sent) refuse('this batch was already sent; add new rows to a new batch');
    if (this.#rows.size + rows > MAX_ROWS || this.#texts + texts > MAX_TEXTS) {
      refuse(`a batch has at most ${MAX_ROWS} rows and ${MAX_TEXTS} bytes of texts; apply this one and begin another`);
    }
  }

  #fold(anchor, delta, flags, text) {
    let row = this.#rows.get(anchor);
    if (row === undefined) {
      checkAnchor(anchor);
      this.#room(1, text.length);
      row = new Row(anchor);
      this.#rows.set(anchor, row);
    } else {
      this.#room(0, text.length);
    }
    this.#texts += text.length;
    row.delta ^= delta;
    row.flags |= flags;
    return row;
  }
}

const slotOf = (anchor) => Number(anchor & 0xfffn);

function into(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

const LITTLE = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

function packLoose(shard, rows, task) {
  const n = rows.length;
  const flags = Buffer.allocUnsafe(n);
  const anchors = new BigUint64Array(n);
  const deltas = new BigUint64Array(n);
  const sources = [];
  const whys = [];
  for (let i = 0; i < n; i++) {
    const row = rows[i];
    flags[i] = row.flags;
    anchors[i] = row.anchor;
    deltas[i] = row.delta;
    if (row.flags & TRACK) sources.push(row.source);
    if (row.flags & FAIL) whys.push(row.why);
  }
  const columns = [flags, swapped(anchors.slice()), swapped(deltas)];
  const argv = [...columns, sources.length ? task : '', ...sources, ...whys];
  return new Part('apply', shard, argv, anchors);
}

function swapped(values) {
  const bytes = Buffer.from(values.buffer);
  return LITTLE ? bytes.swap64() : bytes;
}

/** Return the seven arguments of a block that another client has tracked. */
function packBlock(number, rows) {
  rows.sort((a, b) => (a.anchor < b.anchor ? -1 : 1));
  const its = rows.filter((row) => row.delta !== 0n);
  const flags = rows.some((row) => row.flags & TOUCH) ? TOUCH : 0;
  const slots = Buffer.alloc(2 * its.length);
  its.forEach((row, i) => slots.writeUInt16BE(slotOf(row.anchor), 2 * i));
  const deltas = swapped(BigUint64Array.from(its, (row) => row.delta));
  const failed = [];
  for (const row of rows) {
    if (!(row.flags & FAIL)) continue;
    const head = Buffer.alloc(3);
    head.writeUInt16BE(slotOf(row.anchor));
    head[2] = row.why.length;
    failed.push(head, row.why);
  }
  const name = swapped(BigUint64Array.of(number));
  return [Buffer.from([flags]), name, EMPTY, EMPTY, slots, deltas, Buffer.concat(failed)];
}

/** One call, which is applied completely or not at all, under its own number. */
export class Part {
  constructor(script, shard, argv, anchors = []) {
    this.script = script;
    this.shard = shard;
    this.argv = argv;
    /** Anchors of loose rows, in the order of the call. */
    this.anchors = anchors;
    this.digest_ = '';
  }

  /** 16 hex digits that identify the content of this call. */
  get digest() {
    if (!this.digest_) {
      const hash = createHash('sha1');
      for (const arg of this.argv) {
        hash.update(`${Buffer.byteLength(arg)} `);
        hash.update(arg);
      }
      this.digest_ = hash.digest('hex').slice(0, 16);
    }
    return this.digest_;
  }

  /** Parse the script's reply; `highest` is set if the call was a repeat. */
  read(reply) {
    if (Number(reply[0]) === 0) return { highest: Number(reply[1]), tracked: 0, acked: 0, failed: 0, rejected: [] };
    const numbers = Buffer.from(reply[7]);
    const rejected = [];
    for (let i = 0; i < numbers.length; i += 2) rejected.push(this.anchors[numbers.readUInt16BE(i)]);
    return {
      highest: null,
      tracked: Number(reply[1]), acked: Number(reply[2]), failed: Number(reply[3]),
      pending: Number(reply[5]), highWater: Number(reply[6]), rejected,
    };
  }
}

/** Return the result of a batch, over all its calls. */
export function combine(parts, replies) {
  const applied = { tracked: 0, acked: 0, failed: 0, rejected: [], repeated: false };
  parts.forEach((_, i) => {
    const reply = replies.get(i);
    applied.repeated ||= reply.highest !== null;
    for (const field of ['tracked', 'acked', 'failed']) applied[field] += reply[field];
    applied.rejected.push(...reply.rejected);
  });
  return applied;
}

// Processing

/** Messages that are processed together, and the messages they caused; `Acker.process` creates it. */
export class Processing {
  #inputs;
  #deltas = new Map();
  #ids;
  #send;
  #keys = new Set();
  #state = 'open';

  constructor(send, texts, ids) {
    this.#send = send;
    this.#ids = ids;
    this.#inputs = texts.map(parseMessage);
    const seen = new Set();
    for (const [anchor, id] of this.#inputs.flatMap((input) => [...input])) {
      const pair = `${anchor}:${id}`;
      if (seen.has(pair)) refuse(`a message of tree ${anchor} is given twice; its rows would cancel`);
      seen.add(pair);
      this.#fold(anchor, id);
    }
  }

  /** Return the id of a new message that these inputs caused (their places; default: all). Send one message with it. */
  emit(places = this.#inputs.keys(), { key, edge = '' } = {}) {
    this.#check();
    const parents = this.#chosen([...places]);
    const text = key === undefined ? undefined : checkKey(key);
    if (this.#keys.has(text)) refuse(`key ${text} was already used for another message; give each child its own`);
    const code = this.#ids.code(edge);
    const child = this.#child(parents, text);
    if (text !== undefined) this.#keys.add(text);
    // Each input draws an edge id, and one of them carries the code in each tree. The inputs are acked
    // together, so the row of a tree has all edge ids of the tree: their XOR is the child's id.
    for (const [anchor, id] of child) {
      child.set(anchor, id | code);
      this.#fold(anchor, id | code);
    }
    return formatMessage(child);
  }

  /** Ack the messages; emit first. Resolves when the rows are applied. */
  ack() {
    return this.#end('acked', this.#rows(0, true));
  }

  /** Fail the messages and their trees. Resolves when the rows are applied. */
  fail(why = '') {
    return this.#end('failed', this.#rows(FAIL, true, clip(why)));
  }

  /** Reset the timeout of the trees. Resolves when the rows are applied. */
  touch() {
    this.#check();
    return this.#send(this.#rows(TOUCH, false));
  }

  /** Return the inputs in these places that belong to a tree. */
  #chosen(places) {
    if (new Set(places).size !== places.length) refuse('an input is given twice');
    for (const place of places) {
      if (!this.#inputs[place]) refuse(`there is no input ${place}`);
    }
    return places.map((place) => this.#inputs[place]).filter((input) => input.size);
  }

  /** Return the ids of a child without a code: in each tree the XOR of the edge ids of its inputs there. */
  #child(parents, key) {
    for (let attempt = 0; ; attempt++) {
      const edgeIds = key === undefined ? this.#ids.draw(parents.length) : this.#derived(parents, key, attempt);
      const child = new Map();
      parents.forEach((input, i) => {
        for (const anchor of input.keys()) child.set(anchor, (child.get(anchor) ?? 0n) ^ edgeIds[i]);
      });
      // Edge ids cancel with a probability of 2^-55.
      if (![...child.values()].includes(0n)) return child;
    }
  }

  /** Return an edge id for each input, derived from all inputs and the key. */
  #derived(parents, key, attempt) {
    const texts = parents.map(formatMessage);
    const sorted = [...texts].sort();
    return texts.map((own) => this.#ids.derive('child', key, String(attempt), ...sorted, own));
  }

  #fold(anchor, id) {
    this.#deltas.set(anchor, (this.#deltas.get(anchor) ?? 0n) ^ id);
  }

  #check() {
    if (this.#state !== 'open') throw new AckerError('CLOSED', `this message was ${this.#state} before`);
  }

  #end(state, rows) {
    this.#check();
    this.#state = state;
    return this.#send(rows);
  }

  #rows(flags, isWhole, why = '') {
    return [...this.#deltas].map(([anchor, delta]) => ({ anchor, delta: isWhole ? delta : 0n, flags, why }));
  }
}

function checkKey(key) {
  const text = String(key);
  return text.isWellFormed() ? text : refuse('a key is text that UTF-8 can encode');
}
