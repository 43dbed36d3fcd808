// Tests of the features that only this client has: promises, buffers, iterators. Run by
// tests/languages/test_node.py, which starts the server: node --test, with ACKER_REDIS_URL.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { inspect } from 'node:util';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { Acker, AckerError, Batch, blockAnchor, newAnchor, newIds } from 'acker-redis';
import { IdMaker } from '../ids.js';

const url = process.env.ACKER_REDIS_URL;
const namespace = process.env.ACKER_NAMESPACE;
// The numbers of the first 8 bytes of the hash, and of a block, by the Python client.
const DERIVED = 3113856314616919984n;
const BLOCK = 21059389260447n;
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

test('a client of ioredis with automatic pipelines works', async () => {
  const pipelined = new Redis(url, { enableAutoPipelining: true });
  const acker = new Acker(pipelined, namespace);
  const trees = await Promise.all([0, 1, 2].map((n) => acker.track({ task: 'piped', sourceId: `s${n}`, emitted: 1 })));
  await Promise.all(trees.map(async ({ ids }) => (await acker.process(ids[0])).ack()));
  assert.deepEqual((await all(acker.outcomes('piped'))).map((o) => o.sourceId).sort(), ['s0', 's1', 's2']);
  pipelined.disconnect();
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

test('an anchor that is tracked by two batches gives a conflict', async () => {
  const acker = new Acker(client, namespace);
  const anchor = newAnchor();
  const batch = () => {
    const one = new Batch('twice');
    one.track(anchor, 's', newIds(1));
    return one;
  };
  await acker.apply(batch());
  await acker.apply(batch());
  assert.deepEqual((await all(acker.outcomes('twice'))).map((o) => o.reason), ['conflict']);
});

test('invalid input throws immediately and changes nothing', async () => {
  const acker = new Acker(client, namespace);
  const one = await acker.process('7:40');
  for (const wrong of [
    () => acker.ack(0n, 1n), () => acker.ack(7, 1n), () => acker.ack(7n, 2n ** 63n),
    () => acker.ack(7n, 1n, [1n]), () => acker.fail(7n, 'a\nb'),
    () => new Acker(client, 'a b'), () => new Acker({}, namespace), () => new Batch('t').trackBlock('b', [], 1n),
    () => new Batch('t').trackBlock('b', [1n]), () => new Batch('t').trackBlock('orders/3@1000~2', [1n], 1n),
    () => blockAnchor(1n, 4095), () => one.emit([1]), () => one.emit([0], { key: '\ud800' }),
  ]) {
    assert.throws(wrong, (error) => error instanceof AckerError && error.code === 'REFUSED');
  }
  for (const inputs of [['7'], ['7:40', '7:40'], ['7:40', '7:40,8:41']]) {
    await assert.rejects(acker.process(...inputs), { code: 'REFUSED' });
  }
  await assert.rejects(acker.track({ task: 't', sourceId: 's', emitted: [40n], edge: 'mill' }), { code: 'REFUSED' });
  await assert.rejects(acker.track({ task: 't', sourceId: '' }), { code: 'REFUSED' });
  const unreachable = new Acker(client, 'never-created');
  await assert.rejects(unreachable.trackBlock({ task: 't', label: 'p@7', deltas: [1n] }), { code: 'REFUSED' });
  await acker.flush();
});

test('a message that is processed again emits the same ids if they have keys', async () => {
  const acker = new Acker(client, namespace);
  const inputs = ['7:40,8:41', '7:42'];
  const [one, again] = [await acker.process(...inputs), await acker.process(...inputs)];
  const ids = [undefined, [0], [1]].flatMap((places) => ['a', 'b'].map((k) => one.emit(places, { key: k + places })));
  assert.equal(new Set(ids).size, 6);
  assert.deepEqual(
    [undefined, [0], [1]].flatMap((places) => ['a', 'b'].map((k) => again.emit(places, { key: k + places }))), ids);
  assert.throws(() => one.emit(undefined, { key: 'aundefined' }), { code: 'REFUSED' });
  const { ids: [first] } = await acker.track({ task: 'keys', sourceId: 's' });
  const twice = await acker.process(first);
  const child = twice.emit(undefined, { key: 1 });
  assert.equal(child, (await acker.process(first)).emit(undefined, { key: 1 }));
  await twice.ack();
  await (await acker.process(child)).ack();
  assert.deepEqual((await all(acker.outcomes('keys'))).map((o) => o.verdict), ['ack']);
});

test('a tree is shown, loose or in a block', async () => {
  const acker = new Acker(client, namespace);
  const { anchor, ids: [id] } = await acker.track({ task: 'shown', sourceId: 'order / "ü" \\' });
  const { ageMs, idleMs, ...tree } = await acker.show(anchor);
  const checksum = BigInt(id.split(':')[1]);
  assert.deepEqual(tree, { checksum, failed: false, task: 'shown', sourceId: 'order / "ü" \\', why: '' });
  assert.ok(ageMs >= 0 && ageMs < 3_600_000);
  assert.ok(idleMs >= 0 && idleMs <= ageMs);
  const block = await acker.trackBlock({ task: 'shown', label: 'page ü', deltas: [1n, 2n ** 63n - 1n] });
  await acker.fail(blockAnchor(block, 1), 'no');
  const second = await acker.show(blockAnchor(block, 1));
  assert.deepEqual([second.checksum, second.failed, second.task, second.sourceId, second.why],
    [2n ** 63n - 1n, true, 'shown', 'page ü', '']);
  assert.equal((await acker.show(blockAnchor(block, 0))).failed, false);
  assert.equal(await acker.show(blockAnchor(block, 2)), null);
  const unknown = newAnchor();
  assert.equal(await acker.show(unknown), null);
  await acker.fail(unknown, 'unknown tree');
  const early = await acker.show(unknown);
  assert.deepEqual([early.task, early.sourceId, early.why, early.failed], ['', '', 'unknown tree', true]);
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

test('a source waits while its backlog is full', async () => {
  const narrow = process.env.ACKER_NARROW;
  const acker = new Acker(client, narrow);
  await acker.track({ task: 'full', sourceId: 'first', emitted: 0 });
  const hasty = new Acker(other, narrow, { retryMs: 0 });
  await assert.rejects(hasty.track({ task: 'full', sourceId: 'hasty', emitted: 0 }), { code: 'BACKLOG' });
  const second = acker.track({ task: 'full', sourceId: 'second', emitted: 0 });
  // The second tree may be tracked between two reads of the first loop.
  const found = await all(acker.outcomes('full'));
  assert.equal(found[0].sourceId, 'first');
  await second;
  found.push(...(await all(acker.outcomes('full'))));
  assert.deepEqual(found.map((o) => o.sourceId), ['first', 'second']);
});

test('a tree above the high-water mark is rejected', async () => {
  const acker = new Acker(client, process.env.ACKER_LOW);
  const rejected = [];
  for (const sourceId of ['a', 'b', 'c']) {
    rejected.push((await acker.track({ task: 'low', sourceId })).rejected);
  }
  assert.deepEqual(rejected, [false, false, true]);
  await assert.rejects(acker.trackBlock({ task: 'low', label: 'b', deltas: [1n] }), { code: 'REJECTED' });
  assert.deepEqual((await all(acker.outcomes('low'))).map((o) => [o.reason, o.sourceId]),
    [['overflow', 'c'], ['overflow', 'b']]);
});

test('close sends the waiting rows and accepts no more', async () => {
  const acker = new Acker(client, namespace, { lingerMs: 60_000 });
  const tracked = acker.track({ task: 'closed', sourceId: 's', emitted: 0 });
  await acker.close();
  assert.equal((await tracked).rejected, false);
  await assert.rejects(acker.touch(1n), { code: 'CLOSED' });
});

test('a block that is tracked again has the same number, and its trees complete', async () => {
  const acker = new Acker(other, namespace);
  const deltas = newIds(3);
  const block = await acker.trackBlock({ task: 'blocks', label: 'page 1', deltas });
  assert.equal(block, await acker.blockNumber('blocks', 'page 1'));
  assert.equal(await acker.trackBlock({ task: 'blocks', label: 'page 1', deltas }), block);
  await Promise.all(deltas.map((delta, slot) => acker.ack(blockAnchor(block, slot), delta)));
  const outcomes = await all(acker.outcomes('blocks'));
  assert.deepEqual(outcomes.map((o) => [o.verdict, o.sourceId, o.anchor]),
    [0, 1, 2].map((slot) => ['ack', 'page 1', blockAnchor(block, slot)]));
});

test('ids are in range and distinct', () => {
  const drawn = newIds(10_000);
  assert.equal(new Set(drawn).size, 10_000);
  assert.ok(drawn.every((id) => id >= 1n && id < 2n ** 63n));
  assert.ok(drawn.some((id) => id >= 2n ** 62n));
  assert.ok(Array.from({ length: 100 }, newAnchor).every((anchor) => anchor >= 1n && anchor < 2n ** 62n));
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

test('derived ids are those of the wire protocol', () => {
  const maker = new IdMaker();
  maker.configure(['mill'], '00112233445566778899aabbccddeeff');
  assert.equal(maker.derive('child', 'mill №2', '0', '7:40', '7:40'), DERIVED >> 9n);
  maker.configure([], '00112233445566778899aabbccddeeff');
  assert.equal(maker.derive('child', 'mill №2', '0', '7:40', '7:40'), DERIVED >> 1n);
  assert.equal(maker.block('shop', 'page №2'), BLOCK);
});

test('a malformed entry of a block is an error and gives no verdict', async () => {
  const acker = new Acker(other, namespace);
  const stream = `acker:{${namespace}:0}:outcomes:spoiled`;
  const mixed = {
    verdict: 'mixed', reason: 'expired', n: '2', block: '0000000000007', label: 'page', age: '5', cause: 'idle',
    idle: '4', slots: '10', nacked: '8000', failed: '0040', residuals: '00000000000000ff', present: '9040',
  };
  const read = async (entry) => {
    await other.del(stream);
    await other.xadd(stream, '*', ...Object.entries(entry).flat());
    return (await acker.read('spoiled')).flatMap(({ outcomes }) => outcomes);
  };
  assert.deepEqual((await read(mixed)).map((o) => [o.verdict, o.anchor & 0xfffn, o.residual]),
    [['nack', 0n, 255n], ['ack', 3n, 0n]]);
  const complete = { ...mixed, verdict: 'ack', reason: 'completed', residuals: '', nacked: '' };
  assert.deepEqual((await read(complete)).map((o) => [o.verdict, o.anchor & 0xfffn]), [['ack', 0n], ['ack', 3n]]);
  for (const name of ['failed', 'nacked', 'present']) {
    for (const wrong of ['90', '904', '90400', '904000', '9g40', '9041', '0x90', '[0,3]']) {
      await assert.rejects(read({ ...mixed, [name]: wrong }), { code: 'SCHEMA' }, `${name} ${wrong}`);
    }
  }
  // Entries with a valid bitmap that was changed.
  for (const wrong of [{ failed: '' }, { present: '' }, { present: '9060' }, { failed: '1040' }, { nacked: '' },
    { nacked: '9000' }, { residuals: '00' }, { slots: '' }, { n: '3' }]) {
    await assert.rejects(read({ ...mixed, ...wrong }), { code: 'SCHEMA' }, JSON.stringify(wrong));
  }
  await other.del(stream);
});

test('a tree in a block is not shown if the block has lost what it needs', async () => {
  const acker = new Acker(other, namespace);
  const block = await acker.trackBlock({ task: 'lost', label: 'page', deltas: newIds(10) });
  const [prefix, name] = [`acker:{${namespace}:${block % 2n}}`, block.toString(16).padStart(13, '0')];
  await other.set(`${prefix}:present:${name}`, Buffer.of(0x7f, 0xc0)); // stale: the header says that no slot is absent
  assert.equal((await acker.show(blockAnchor(block, 0))).failed, false);
  await other.set(`${prefix}:failed:${name}`, Buffer.of(0x80));
  await assert.rejects(acker.show(blockAnchor(block, 0)), { code: 'SCHEMA' });
  await other.set(`${prefix}:failed:${name}`, Buffer.of(0x80, 0x40));
  const failed = await Promise.all([0, 1, 9].map((slot) => acker.show(blockAnchor(block, slot))));
  assert.deepEqual(failed.map((tree) => tree.failed), [true, false, true]);
  await other.del(`${prefix}:block:${name}`);
  await assert.rejects(acker.show(blockAnchor(block, 0)), { code: 'SCHEMA' });
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
