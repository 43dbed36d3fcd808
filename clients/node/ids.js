// The tuple ids of a namespace. In a namespace with edges, bit 55 + k of an id stands for edge k: the way
// on which the message goes from one step to the next. lua/README.md of the project, "Ids".

import { createHash } from 'node:crypto';
import { emitWarning } from 'node:process';
import { TUPLE_MAX, newIds } from './batch.js';
import { AckerError } from './errors.js';

const EDGE_BIT = 55n;
const EDGE_LOW = 2n ** EDGE_BIT - 1n;
const MAX_WARNINGS = 1000;

/** Makes ids: random or derived, with the bit of an edge. It follows the configuration of the namespace. */
export class IdMaker {
  #edges = null; // null until they are known
  #salt = ''; // a secret: a private field, which is never inspected or serialized
  #unlisted = new Set();

  configure(edges, salt) {
    this.#edges = edges;
    this.#salt = salt;
  }

  /** Whether the edges and the salt are known. Until then ids have no bit of an edge, which is right anywhere. */
  get known() {
    return this.#edges !== null;
  }

  /** Return the bit of an edge; 0n for '' and for an edge that the namespace does not list. */
  code(edge) {
    if (!edge || !this.known) return 0n;
    const place = this.#edges.indexOf(edge);
    if (place >= 0) return 1n << (EDGE_BIT + BigInt(place));
    if (!this.#unlisted.has(edge) && this.#unlisted.size < MAX_WARNINGS) {
      this.#unlisted.add(edge);
      emitWarning(`the namespace does not list edge ${edge} (it lists ${this.#edges.join(', ') || 'none'}): ` +
        'verdicts cannot name it', 'AckerWarning');
    }
    return 0n;
  }

  /** Return the edges on which an odd number of messages is outstanding, by the residual of a tree. */
  edgesOf(residual) {
    return (this.#edges ?? []).filter((_, k) => (residual >> (EDGE_BIT + BigInt(k))) & 1n);
  }

  /** Return `count` random ids without a code. */
  draw(count) {
    return newIds(count, this.#edges?.length === 0 ? TUPLE_MAX : EDGE_LOW);
  }

  /** Return an id without a code that depends on the salt, the purpose and the parts only. */
  derive(purpose, ...parts) {
    if (!this.known) {
      throw new AckerError('UNAVAILABLE', 'the id of a child with a key needs the salt of its namespace, which could ' +
        'not be read from Redis yet; await acker.config() before');
    }
    return this.#hash(purpose, ...parts) >> (this.#edges.length ? 9n : 1n);
  }

  #hash(...parts) {
    const hash = createHash('sha256');
    for (const part of [this.#salt, ...parts]) hash.update(`${Buffer.byteLength(part)}:${part}`);
    return hash.digest().readBigUInt64BE();
  }
}
