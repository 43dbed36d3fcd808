/// <reference types="node" />

/** A supported client: a connected client of ioredis, or of redis (node-redis), or a cluster client of either. */
export type RedisClient =
  | { callBuffer(command: string, ...args: (string | Buffer | number)[]): Promise<unknown> }
  | { sendCommand(...args: never[]): Promise<unknown>; withTypeMapping(mapping: never): unknown };

export interface Settings {
  /** How long a batch is retried whose reply was lost or that Redis refused with BACKLOG. Default 10000. */
  retryMs?: number;
  /** Timeout of a reply; after it the reply counts as lost. Default 5000. */
  replyMs?: number;
  /** How long a row waits for others to join it. Default 2; 0: it waits only for the call in flight. */
  lingerMs?: number;
  /** Maximum waiting rows; a row above it is given up immediately, with code FULL. Default 65536. */
  buffer?: number;
  /** Called for rows that were given up, whose trees expire: with the error and their anchors. */
  onGivenUp?: (error: AckerError, anchors: bigint[]) => void;
}

export interface Applied {
  tracked: number;
  acked: number;
  failed: number;
  /** Anchors of the trees that were nacked for overflow: emit none of their messages. */
  rejected: bigint[];
  /** Whether a call was a repeat whose first reply was lost: its counts are missing. */
  repeated: boolean;
}

export interface Outcome {
  /** `ack`: complete. `nack`: replay it. `touch`: its timeout was reset. */
  verdict: 'ack' | 'nack' | 'touch';
  reason: 'completed' | 'failed' | 'expired' | 'overflow' | 'conflict' | 'reset';
  anchor: bigint;
  /** The source id; for a tree in a block, the block's label. */
  sourceId: string;
  ageMs: number;
  why: string;
  /** Of an expired tree: `idle`, no row came for long enough; or `deadline`. Otherwise ''. */
  cause: '' | 'idle' | 'deadline';
  /** Of an expired tree: the XOR of the ids of its outstanding messages; 0n if it is unknown. */
  residual: bigint;
  /** Of an expired tree: the time from its last row to the verdict. */
  idleMs: number;
  /** Of an expired tree: the edges on which an odd number of messages is outstanding. */
  edges: string[];
}

export interface Entry {
  shard: number;
  id: string;
  outcomes: Outcome[];
}

/** An error; its code is one of the scripts' codes (BACKLOG, CONFLICT, NAMESPACE, ..), or one of the client's. */
export class AckerError extends Error {
  code:
    | 'ARGS' | 'SHARD' | 'NAMESPACE' | 'SCHEMA' | 'EXISTS' | 'CONFLICT' | 'FENCE' | 'BACKLOG' | 'RESHARD'
    /** Invalid input; nothing was sent. */
    | 'REFUSED'
    /** A later batch or another process has used the lane. */
    | 'LANE'
    /** No reply came in time; the batch may have been applied. */
    | 'UNAVAILABLE'
    /** The fence may have expired, so the batch may not be sent again. */
    | 'LATE'
    | 'FULL' | 'CLOSED' | 'REDIS';
  /** With code REDIS: whether the cause may pass, such as a full memory, and nothing was changed. */
  mayPass: boolean;
}

/** Messages that are processed together. */
export interface Processing {
  /**
   * Returns the id, as text, of a new message that these inputs caused (their places; default: all). Send one
   * message with it. With a `key`, which identifies the child, the id is deterministic: when the same messages
   * are delivered and processed again, the child has the same id. `edge` is the name of the edge that the
   * message travels on; a name that the namespace does not list is warned of once.
   */
  emit(places?: Iterable<number>, options?: { key?: string | number; edge?: string }): string;
  /** Acks the messages. Resolves when the rows are applied. After the call nothing can be emitted. */
  ack(): Promise<unknown>;
  /** Fails the messages and their trees: the sources receive `why` (cut to 255 bytes). */
  fail(why?: string | Error): Promise<unknown>;
  /** Resets the timeout of the trees. */
  touch(): Promise<unknown>;
}

/** Rows folded per anchor: at most 1024 anchors and 64 KiB of texts. */
export class Batch {
  /** `task` is the source that tracks; a batch that tracks nothing needs no task. */
  constructor(task?: string);
  readonly size: number;
  readonly empty: boolean;
  readonly full: boolean;
  track(anchor: bigint, sourceId: string, emitted: Iterable<bigint>): void;
  ack(anchor: bigint, tuple: bigint, emitted?: Iterable<bigint>): void;
  fail(anchor: bigint, why?: string, tuple?: bigint, emitted?: Iterable<bigint>): void;
  touch(anchor: bigint): void;
}

/**
 * One namespace. Rows are batched by size and by `lingerMs`; a promise resolves when its row is applied.
 * A caller that does not await it is notified of an error by `flush()` and `onGivenUp`.
 */
export class Acker {
  constructor(client: RedisClient, namespace: string, settings?: Settings);
  readonly namespace: string;

  /** `emitted`: the number of first messages, which travel on `edge`; or their ids, from `newIds()`. */
  track(
    tree: { task: string; sourceId: string; emitted?: number; edge?: string } |
      { task: string; sourceId: string; emitted: Iterable<bigint>; edge?: undefined },
  ): Promise<{
    anchor: bigint;
    /** Ids to send along with the first messages. */
    ids: string[];
    /** Whether the tree was nacked immediately: emit none of its messages. */
    rejected: boolean;
  }>;
  /** Begins to process messages; resolves when the configuration is known, which only the first call reads. */
  process(...inputs: string[]): Promise<Processing>;
  ack(anchor: bigint, tuple: bigint, emitted?: Iterable<bigint>): Promise<unknown>;
  fail(anchor: bigint, why?: string, tuple?: bigint, emitted?: Iterable<bigint>): Promise<unknown>;
  touch(anchor: bigint): Promise<unknown>;
  /** Sends all rows and waits for the replies. Throws the first error since the last flush. */
  flush(): Promise<void>;
  /** Flushes, and accepts no more rows; the Redis client stays open. */
  close(): Promise<void>;

  /** Yields the verdicts of a task; an entry is taken when all its outcomes were handled and the next is requested. */
  outcomes(
    task: string,
    options?: { follow?: boolean; pollMs?: number; signal?: AbortSignal },
  ): AsyncGenerator<Outcome, void, void>;
  /** Reads the waiting entries; they are read again until they are taken. */
  read(task: string, count?: number): Promise<Entry[]>;
  take(task: string, entries: Iterable<Entry>): Promise<number>;

  /** Applies a batch that you filled. After UNAVAILABLE or BACKLOG it may be applied again. */
  apply(batch: Batch): Promise<Applied>;
  config(): Promise<{ shards: number; fenceMs: number; reshard: boolean; edges: string[] }>;

  /** Draws tuple ids of messages on an edge, for a batch that you fill. */
  newIds(count: number, edge?: string): Promise<bigint[]>;
}

/** Returns `count` tuple ids, 1 .. 2^63-1, from the system's random source; with edges use `Acker.newIds()`. */
export function newIds(count: number): bigint[];
/** Returns an anchor, 1 .. 2^62-1. */
export function newAnchor(): bigint;
