// Tests of the features that only this client has: promises, buffers, iterators. Run by
// tests/languages/test_node.py, which starts the server: node --test, with ACKER_REDIS_URL.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { Acker, AckerError } from 'acker-redis';
import { IdMaker } from '../ids.js';

const url = process.env.ACKER_REDIS_URL;
const namespace = process.env.ACKER_NAMESPACE;
let client;
let other;

before(async () => {
  client = await createClient({ url }).connect();
  other = new Redis(url);
});

after(() => {
  client.destroy();
  other.disconnect();
});

const all = async (iterator) => {
  const found = [];
  for await (const one of iterator) found.push(one);
  return found;
};

test('an entry is taken only after all its outcomes were handled', async () => {
  const acker = new Acker(client, namespace);
  await Promise.all(['a', 'b'].map((sourceId) => acker.track({ task: 'taken', sourceId, emitted: 0 })));
  for await (const { sourceId } of acker.outcomes('taken')) {
    assert.ok(['a', 'b'].includes(sourceId)); // the two entries may be in one shard or in two
    break; // a consumer that stops has not handled the entry
  }
  assert.deepEqual((await all(acker.outcomes('taken'))).map((o) => o.sourceId).sort(), ['a', 'b']);
  assert.deepEqual(await all(acker.outcomes('taken')), []);
});

test('a client of ioredis that changes keys is refused', () => {
  const prefixed = new Redis(url, { keyPrefix: 'p:', lazyConnect: true });
  assert.throws(() => new Acker(prefixed, namespace), { code: 'REFUSED', message: /keyPrefix/ });
});

test('outcomes are followed until the signal is aborted', async () => {
  const acker = new Acker(other, namespace);
  const aborts = new AbortController();
  setTimeout(() => acker.track({ task: 'followed', sourceId: 'late', emitted: 0 }), 20);
  for await (const { sourceId } of acker.outcomes('followed', { follow: true, pollMs: 5, signal: aborts.signal })) {
    assert.equal(sourceId, 'late');
    aborts.abort();
  }
  assert.deepEqual(await acker.read('followed'), []);
});

test('rows of many callers are sent in few calls', async () => {
  const acker = new Acker(client, namespace);
  const trees = await Promise.all(
    Array.from({ length: 3000 }, (_, i) => acker.track({ task: 'many', sourceId: `s${i}` })));
  const before = Number((await other.info('commandstats')).match(/evalsha:calls=(\d+)/)[1]);
  await Promise.all(trees.map(async ({ ids }) => (await acker.process(ids[0])).ack()));
  const after = Number((await other.info('commandstats')).match(/evalsha:calls=(\d+)/)[1]);
  assert.ok(after - before <= 8, `${after - before} calls`);
  const outcomes = await all(acker.outcomes('many'));
  assert.equal(outcomes.length, 3000);
  assert.ok(outcomes.every(({ verdict }) => verdict === 'ack'));
});

test('invalid input throws immediately and changes nothing', async () => {
  const acker = new Acker(client, namespace);
  const one = await acker.process('7:40');
  for (const wrong of [
    () => acker.ack(0n, 1n), () => acker.ack(7, 1n), () => acker.ack(7n, 2n ** 63n),
    () => acker.ack(7n, 1n, [1n]), () => acker.fail(7n, 'a\nb'),
    () => new Acker(client, 'a b'), () => new Acker({}, namespace),
    () => one.emit([1]), () => one.emit([0], { key: '\ud800' }),
  ]) {
    assert.throws(wrong, (error) => error instanceof AckerError && error.code === 'REFUSED');
  }
  for (const inputs of [['7'], ['7:40', '7:40'], ['7:40', '7:40,8:41']]) {
    await assert.rejects(acker.process(...inputs), { code: 'REFUSED' });
  }
  await assert.rejects(acker.track({ task: 't', sourceId: 's', emitted: [40n], edge: 'mill' }), { code: 'REFUSED' });
  await assert.rejects(acker.track({ task: 't', sourceId: '' }), { code: 'REFUSED' });
  await acker.flush();
});

test('a message emits nothing after its ack', async () => {
  const acker = new Acker(client, namespace);
  const { ids } = await acker.track({ task: 'ended', sourceId: 's' });
  const order = await acker.process(ids[0]);
  await order.ack();
  for (const late of [() => order.emit(), () => order.ack(), () => order.fail('no'), () => order.touch()]) {
    assert.throws(late, { code: 'CLOSED' });
  }
});

test('the text of an error is cut to the maximum size of a why', async () => {
  const acker = new Acker(client, namespace);
  const { ids } = await acker.track({ task: 'words', sourceId: 's' });
  await (await acker.process(ids[0])).fail(new Error(`line\n\ud800${'ü'.repeat(200)}`));
  const [{ why }] = await all(acker.outcomes('words'));
  assert.equal(why, `Error: line \ufffd${'ü'.repeat(120)}`);
  assert.ok(Buffer.byteLength(why) <= 255);
});

test('the reason of an AggregateError has the first errors in it', async () => {
  const acker = new Acker(client, namespace);
  const { ids } = await acker.track({ task: 'several', sourceId: 's' });
  const failed = await Promise.any([1, 2, 3, 4].map((n) => Promise.reject(new RangeError(n)))).catch((error) => error);
  await (await acker.process(ids[0])).fail(new AggregateError([failed, new TypeError('x')]));
  const [{ why }] = await all(acker.outcomes('several'));
  assert.equal(why, 'RangeError: 1; RangeError: 2; RangeError: 3; and 1 more; TypeError: x');
});

test('errors of rows that are not awaited are reported by flush and onGivenUp', async () => {
  const reported = [];
  const acker = new Acker(client, 'never-created', { onGivenUp: (error, anchors) => reported.push([error.code, anchors]) });
  acker.ack(7n, 40n);
  acker.touch(8n);
  await assert.rejects(acker.flush(), { code: 'NAMESPACE' });
  assert.deepEqual(reported, [['NAMESPACE', [7n, 8n]]]);
  await acker.flush(); // an error is reported once
  acker.touch(9n);
  const flushed = await Promise.allSettled([acker.flush(), acker.flush()]);
  assert.deepEqual(flushed.map(({ reason }) => reason?.code), ['NAMESPACE', 'NAMESPACE']);
});

test('a row that does not fit the buffer is given up and reported', async () => {
  const reported = [];
  const acker = new Acker(client, namespace, { buffer: 2, onGivenUp: (_, anchors) => reported.push(...anchors) });
  acker.touch(1n);
  acker.touch(2n);
  await assert.rejects(acker.touch(3n), { code: 'FULL' });
  assert.deepEqual(reported, [3n]);
  await assert.rejects(acker.flush(), { code: 'FULL' });
  await acker.touch(3n);
});

test('a tree above the high-water mark is rejected', async () => {
  const acker = new Acker(client, process.env.ACKER_LOW);
  const rejected = [];
  for (const sourceId of ['a', 'b', 'c']) {
    rejected.push((await acker.track({ task: 'low', sourceId })).rejected);
  }
  assert.deepEqual(rejected, [false, false, true]);
  assert.deepEqual((await all(acker.outcomes('low'))).map((o) => [o.reason, o.sourceId]),
    [['overflow', 'c']]);
});

test('close sends the waiting rows and accepts no more', async () => {
  const acker = new Acker(client, namespace, { lingerMs: 60_000 });
  const tracked = acker.track({ task: 'closed', sourceId: 's', emitted: 0 });
  await acker.close();
  assert.equal((await tracked).rejected, false);
  await assert.rejects(acker.touch(1n), { code: 'CLOSED' });
});

test('ids carry the bit of their edge, and an unlisted edge is warned of once', async () => {
  const maker = new IdMaker();
  const warnings = [];
  const warned = (warning) => warnings.push(warning.message);
  process.on('warning', warned);
  maker.configure(['mill', 'shop'], '0'.repeat(32));
  assert.equal(maker.code('shop'), 1n << 56n);
  assert.deepEqual(['', 'nowhere', 'nowhere'].map((edge) => maker.code(edge)), [0n, 0n, 0n]);
  await setImmediate();
  process.off('warning', warned);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /does not list edge nowhere .*mill, shop/);
  assert.ok(maker.draw(1000).every((id) => id >= 1n && id < 2n ** 55n));
  assert.deepEqual(maker.edgesOf((1n << 56n) | 5n), ['shop']);
});

test('an acker that is shown does not reveal the salt', async () => {
  const acker = new Acker(other, namespace);
  await acker.track({ task: 'secret', sourceId: 's' });
  const salt = await other.hget(`acker:{${namespace}:0}:meta`, 'salt');
  const shown = [acker, await acker.config(), await acker.process('7:40'), acker.process].map(
    (one) => inspect(one, { depth: Infinity, showHidden: true, showProxy: true }) + JSON.stringify(one));
  assert.equal(salt.length, 32);
  assert.ok(!shown.join().includes(salt));
});

test('trees that begin before the configuration is known are included in a flush and a close', async () => {
  const acker = new Acker(client, namespace, { lingerMs: 60_000 });
  const trees = ['a', 'b'].map((sourceId) => acker.track({ task: 'first', sourceId, emitted: 0 }));
  await acker.flush();
  await Promise.all(trees);
  assert.equal((await all(acker.outcomes('first'))).length, 2);
});
