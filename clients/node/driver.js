// The driver of this client for tests/languages: see clients/DRIVER.md.

import { createInterface } from 'node:readline';
import { Acker, Batch, newAnchor, newIds } from './index.js';

let client = null;
let acker = null;
const ids = (list) => (list ?? []).map(BigInt);

const LIBRARIES = {
  async redis({ nodes, cluster, timeout_ms }) {
    const { createClient, createCluster } = await import('redis');
    const made = cluster
      ? createCluster({ rootNodes: nodes.map((node) => ({ url: `redis://${node}` })) })
      : createClient({ url: `redis://${nodes[0]}` });
    made.on('error', () => {});
    await made.connect();
    return { made, timeout_ms, close: () => made.destroy() };
  },
  async ioredis({ nodes, cluster, timeout_ms }) {
    const { Redis } = await import('ioredis');
    const places = nodes.map((node) => ({ host: node.split(':')[0], port: Number(node.split(':')[1]) }));
    const made = cluster ? new Redis.Cluster(places) : new Redis(places[0]);
    made.on('error', () => {});
    return { made, timeout_ms, close: () => made.disconnect() };
  },
};

function row(batch, [verb, fields]) {
  const anchor = BigInt(fields.anchor);
  if (verb === 'track') batch.track(anchor, fields.source_id, ids(fields.emitted));
  else if (verb === 'ack') batch.ack(anchor, BigInt(fields.tuple), ids(fields.emitted));
  else if (verb === 'touch') batch.touch(anchor);
  else if (verb === 'fail') {
    const tuple = fields.tuple === undefined ? undefined : BigInt(fields.tuple);
    batch.fail(anchor, fields.why, tuple, ids(fields.emitted));
  } else throw new Error(`unknown row: ${verb}`);
}

const said = (entries) => ({
  outcomes: entries.flatMap(({ outcomes }) =>
    outcomes.map((o) => [o.verdict, o.reason, String(o.anchor), o.sourceId, o.why, o.ageMs,
      o.cause, o.cause && o.residual.toString(16).padStart(16, '0'), o.idleMs, o.edges])),
});

const OPS = {
  async connect(request) {
    client?.close();
    client = await LIBRARIES[request.library](request);
  },
  begin({ namespace, retry_ms, linger_ms }) {
    acker = new Acker(client.made, namespace, { retryMs: retry_ms, lingerMs: linger_ms, replyMs: client.timeout_ms });
  },
  async apply({ task, producer, seq, digest, rows }) {
    const batch = new Batch(task);
    for (const each of rows) row(batch, Object.entries(each)[0]);
    const applied = await acker._applyAs(batch, producer, Number(seq), digest);
    return { ...applied, rejected: applied.rejected.map(String) };
  },
  async read({ task }) {
    return said(await acker.read(task));
  },
  async take({ task }) {
    const entries = await acker.read(task);
    await acker.take(task, entries);
    return said(entries);
  },
  async track({ task, source_id, emit, edge }) {
    const tracked = acker.track({ task, sourceId: source_id, emitted: emit, edge });
    await Promise.all([tracked, acker.flush()]);
    return { emitted: (await tracked).ids };
  },
  async work({ inputs, emit, edges, keys, end, why, flush }) {
    const processing = await acker.process(...inputs);
    const options = (i) => ({ edge: edges?.[i], key: keys?.[i] ?? undefined });
    const emitted = emit.map((places, i) => processing.emit(places, options(i)));
    if (end === 'fail') processing.fail(why);
    else if (end === 'late') {
      processing.ack();
      processing.emit([0]);
    }
    else if (end !== 'none') processing[end]();
    if (flush) await acker.flush();
    return { emitted };
  },
  async flush() {
    await acker.flush();
  },
  async bench({ rows, batch, lanes, trees }) {
    const anchors = [];
    for (let i = 0; i < trees; i += batch) {
      const tracking = new Batch('bench');
      for (let k = i; k < Math.min(trees, i + batch); k++) {
        anchors.push(newAnchor());
        tracking.track(anchors[k], 'bench', newIds(1));
      }
      await acker.apply(tracking);
    }
    const tuples = newIds(rows);
    const edges = newIds(rows);
    const ackers = Array.from({ length: lanes }, () => new Acker(client.made, acker.namespace));
    let done = 0;
    const begun = performance.now();
    await Promise.all(ackers.map(async (one) => {
      while (done < rows) {
        const made = new Batch();
        const last = Math.min(rows, done + batch);
        for (; done < last; done++) made.ack(anchors[done % trees], tuples[done], [edges[done]]);
        await one.apply(made);
      }
    }));
    return { rows, seconds: (performance.now() - begun) / 1000 };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { op, ...request } = JSON.parse(line);
    answer = (await OPS[op](request)) ?? {};
  } catch (error) {
    const code = error.code ?? (error instanceof SyntaxError || error instanceof RangeError ? 'REFUSED' : 'DRIVER');
    answer = { error: code, message: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(); // even if rows still wait
