/// <reference types="node" />

/** What this works with: a connected client of ioredis, or of redis (node-redis), or their clusters. */
export type RedisClient =
  | { callBuffer(command: string, ...args: (string | Buffer | number)[]): Promise<unknown> }
  | { sendCommand(...args: never[]): Promise<unknown>; withTypeMapping(mapping: never): unknown };

export interface Settings {
  /** For how long a batch is sent again whose reply was lost, or that met a full backlog. Default 10000. */
  retryMs?: number;
  /** After how long a reply is taken for lost. Default 5000. */
  replyMs?: number;
  /** How long a row waits for others that may join it. Default 2; 0: for the call in flight alone. */
  lingerMs?: number;
  /** Rows that may wait; what is above is given up at once, with code FULL. Default 65536. */
  buffer?: number;
  /** Told of rows that were given up, which expire: the error and their anchors. */
  onGivenUp?: (error: AckerError, anchors: bigint[]) => void;
}

export interface Applied {
  tracked: number;
  acked: number;
  failed: number;
  /** Anchors of the trees that were nacked for overflow: emit nothing of them. */
  rejected: bigint[];
  /** Numbers of the blocks that were nacked. */
  rejectedBlocks: bigint[];
  /** Whether a call had been applied before, and its reply was lost: its counts are missing. */
  repeated: boolean;
}

export interface Outcome {
  /** `ack`: complete. `nack`: replay it. `touch`: its clock was set back. */
  verdict: 'ack' | 'nack' | 'touch';
  reason: 'completed' | 'failed' | 'expired' | 'overflow' | 'conflict' | 'reset';
  anchor: bigint;
  /** The source's own id; of a tree in a block, the block's label. */
  sourceId: string;
  ageMs: number;
  why: string;
}

/** A tree that is pending; one that was not tracked yet has no task. */
export interface Tree {
  checksum: bigint;
  failed: boolean;
  ageMs: number;
  task: string;
  /** The source's own id; of a tree in a block, the block's label. */
  sourceId: string;
  why: string;
}

export interface Entry {
  shard: number;
  id: string;
  outcomes: Outcome[];
}

/** A code of the scripts (BACKLOG, CONFLICT, NAMESPACE, ..), or one of the client itself. */
export class AckerError extends Error {
  code:
    | 'ARGS' | 'SHARD' | 'NAMESPACE' | 'SCHEMA' | 'EXISTS' | 'CONFLICT' | 'FENCE' | 'BACKLOG' | 'RESHARD'
    /** Cannot be; nothing was sent. */
    | 'REFUSED'
    /** The lane was used by another process. */
    | 'LANE'
    /** No answer came; the batch may have been applied. */
    | 'UNAVAILABLE'
    /** The batch may not be sent again any more. */
    | 'LATE'
    | 'FULL' | 'CLOSED' | 'REJECTED' | 'REDIS';
}

/** Messages that are processed together. */
export interface Processing {
  /**
   * Text of a message that these inputs caused (their places; else all of them): send one with it. With
   * a `key`, which says which one it is, the id is derived: when the same messages are delivered and
   * processed again, it is the same again.
   */
  emit(places?: Iterable<number>, options?: { key?: string | number }): string;
  /** They were processed. Resolves when that is applied; then nothing can be emitted any more. */
  ack(): Promise<unknown>;
  /** They failed, and with them their trees: the sources hear why (255 bytes at most). */
  fail(why?: string | Error): Promise<unknown>;
  /** More time is needed. */
  touch(): Promise<unknown>;
}

/** Rows folded per anchor, and blocks: at most 1024 anchors, 64 blocks, 64 KiB of texts. */
export class Batch {
  /** `task` is the source that tracks; a batch that tracks nothing needs none. */
  constructor(task?: string);
  readonly size: number;
  readonly empty: boolean;
  readonly full: boolean;
  track(anchor: bigint, sourceId: string, emitted: Iterable<bigint>): void;
  /** Returns the block's number: derived from task and label, unless it is given. */
  trackBlock(label: string, deltas: Iterable<bigint>, block?: bigint): bigint;
  ack(anchor: bigint, tuple: bigint, emitted?: Iterable<bigint>): void;
  fail(anchor: bigint, why?: string, tuple?: bigint, emitted?: Iterable<bigint>): void;
  touch(anchor: bigint): void;
}

/**
 * One namespace. Rows are batched, by size and by `lingerMs`; a promise is resolved when its row is
 * applied. Whoever does not wait for it learns by `flush()`, or `onGivenUp`, that it was given up.
 */
export class Acker {
  constructor(client: RedisClient, namespace: string, settings?: Settings);
  readonly namespace: string;

  track(tree: { task: string; sourceId: string; emitted?: number | Iterable<bigint> }): Promise<{
    anchor: bigint;
    /** What to send along with the first messages. */
    ids: string[];
    /** Whether it was nacked at once: emit nothing of it. */
    rejected: boolean;
  }>;
  /** `deltas`: for each slot the XOR of its first messages' ids. Resolves to the block's number. */
  trackBlock(block: { task: string; label: string; deltas: Iterable<bigint>; block?: bigint }): Promise<bigint>;

  process(...inputs: string[]): Processing;
  ack(anchor: bigint, tuple: bigint, emitted?: Iterable<bigint>): Promise<unknown>;
  fail(anchor: bigint, why?: string, tuple?: bigint, emitted?: Iterable<bigint>): Promise<unknown>;
  touch(anchor: bigint): Promise<unknown>;
  /** Send all, and wait until it is answered. Throws the first error since the last flush. */
  flush(): Promise<void>;
  /** Flush, and take nothing in any more; the Redis client stays open. */
  close(): Promise<void>;

  /** Verdicts of a task; an entry is taken when all of it was handled and the next is asked for. */
  outcomes(
    task: string,
    options?: { follow?: boolean; pollMs?: number; signal?: AbortSignal },
  ): AsyncGenerator<Outcome, void, void>;
  /** Entries that wait; the same ones again until they are taken. */
  read(task: string, count?: number): Promise<Entry[]>;
  take(task: string, entries: Iterable<Entry>): Promise<number>;

  /** What is known of a tree that is pending; null if it is not. */
  show(anchor: bigint): Promise<Tree | null>;

  /** Apply a batch of one's own, whole. After UNAVAILABLE or BACKLOG it may be applied again. */
  apply(batch: Batch): Promise<Applied>;
  config(): Promise<{ shards: number; fenceMs: number; reshard: boolean }>;
}

/** So many tuple ids, 1 .. 2^63-1, from the system's random source. */
export function newIds(count: number): bigint[];
/** An anchor, 1 .. 2^62-1. */
export function newAnchor(): bigint;
/** Number of a block: the same identity, the same number. Not the one that the Python client derives. */
export function blockNumber(...identity: (string | number | bigint)[]): bigint;
export function blockAnchor(block: bigint, slot: number): bigint;
