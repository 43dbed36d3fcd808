// Compiled, never run: the types accept both libraries, single servers and clusters, and describe the results.
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { Acker, AckerError, Batch, type Outcome } from 'acker-redis';

export async function uses(): Promise<void> {
  new Acker(new Redis(), 'orders');
  new Acker(new Cluster(['127.0.0.1:6379']), 'orders');
  new Acker(createCluster({ rootNodes: [{ url: 'redis://127.0.0.1' }] }), 'orders', { lingerMs: 0 });
  const acker = new Acker(createClient(), 'orders', { onGivenUp: (error: AckerError) => error.code });
  const { ids, anchor } = await acker.track({ task: 'shop', sourceId: 'order-1', emitted: 2, edge: 'mill' });
  await acker.track({ task: 'shop', sourceId: 'order-2', emitted: await acker.newIds(1, 'mill') });
  const child: string = (await acker.process(...ids)).emit([0, 1], { edge: 'shop', key: 1 });
  await (await acker.process(child)).fail(new Error('no'));
  const batch = new Batch('shop');
  batch.ack(anchor, 40n, [41n]);
  const { rejected }: { rejected: bigint[] } = await acker.apply(batch);
  for await (const outcome of acker.outcomes('shop')) {
    const each: Outcome = outcome;
    if (each.verdict === 'nack') rejected.push(each.anchor, each.residual);
    console.log(each.edges.join(), each.cause, each.idleMs);
  }
  // @ts-expect-error: an id is a BigInt, not a number
  batch.ack(7, 40n);
  // @ts-expect-error: ids that are given have their edge
  await acker.track({ task: 'shop', sourceId: 'order-3', emitted: [40n], edge: 'mill' });
  // @ts-expect-error: a URL is not a client
  new Acker('redis://127.0.0.1', 'orders');
}
