"""A million trees in one bucket: their memory, their drain in bounded calls, and no leftovers."""

import struct
from collections.abc import Iterator

import pytest

from acker_redis.batching.batch import MAX_ROWS, TRACK, Columns
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from proof.simulate.redis_shard import RedisShard
from tests.support import row, track

COUNT = 1_000_000
QUARTER = 250_000
"""Gives Redis's hash table the same load factor as a million, so that a tree weighs the same."""
TASK = "orders-feed"  # 11 bytes
A = 0x1357_9BDF_0246_8ACE


@pytest.fixture(params=["table", "listpack"])
def shard(server: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[RedisShard]:
    """A shard; with ``listpack``, Redis may store even a million fields as a listpack."""
    binary = server._binary
    entries = "64" if request.param == "table" else "2000000"
    with EmbeddedRedis(binary=binary, extra_args=("--hash-max-ziplist-entries", entries)) as own:
        acker = Acker.from_url(own.url, "million", timeout=60)
        huge = 10**9
        acker.create(AckerConfig(tick_ms=3_600_000, high_water=huge, outcomes_limit=huge))
        yield RedisShard(acker)
        acker.close()


@pytest.fixture
def count(server: EmbeddedRedis, request: pytest.FixtureRequest) -> int:
    """Return a million for one combination; fewer trees are enough for the others."""
    params = request.node.callspec.params
    return COUNT if (params["server"], params["shard"]) == ("default", "table") else QUARTER


def fill(shard: RedisShard, count: int) -> None:
    for start in range(1, count + 1, MAX_ROWS):
        ids = range(start, min(start + MAX_ROWS, count + 1))
        form = struct.Struct(f">{len(ids)}Q")
        part = Columns(
            flags=bytes([TRACK]) * len(ids),
            anchors=form.pack(*(i * 0x1D2F_93A1_77C5 % 2**62 for i in ids)),
            deltas=form.pack(*([A] * len(ids))),
            task=TASK,
            texts=tuple(b"source-%07d" % i for i in ids),  # 14 bytes
        )
        shard.send(part)


def take_all(shard: RedisShard) -> int:
    """Take all verdicts without reading them, and return their number."""
    client, taken = shard.acker.connection.client, 0
    stream = shard.keys.outcomes(TASK)
    while entries := client.xrange(stream, count=commands.MAX_TAKE):
        ids = tuple(entry[0] for entry in entries)
        taken += shard.acker.connection.run(Call("take", shard.keys.both, (TASK, *ids)))[1]
    return taken


def used(shard: RedisShard) -> int:
    client = shard.acker.connection.client
    client.execute_command("MEMORY", "PURGE")
    return int(client.info("memory")["used_memory"])


def test_a_million_trees_drain_in_bounded_calls(shard: RedisShard, count: int) -> None:
    client, keys = shard.acker.connection.client, shard.keys
    # First let the server allocate scripts, buffers and small tables.
    fill(shard, MAX_ROWS)
    for _ in range(3):
        shard.rotate(force=True)
        shard.expire()
    take_all(shard)
    before = used(shard)

    fill(shard, count)
    bucket = keys.pending(int(client.hget(keys.meta, "current")))
    assert client.object("encoding", bucket) == b"hashtable"
    weight = client.memory_usage(bucket, samples=0) / count
    allocator = client.info("memory")["mem_allocator"]
    print(f"{weight:.1f} bytes a pending tree by MEMORY USAGE (task 11, source id 14, {allocator})")
    # The wheel's server is built with libc's malloc, which rounds up by more.
    assert weight <= (110 if allocator.startswith("jemalloc") else 116)

    for _ in range(3):
        shard.rotate(force=True)
    calls, left, nacked = 0, count, 0
    while left:
        reply = commands.parse_expire(
            shard.acker.connection.run(commands.expire(ShardKeys("million", 0), 1000))
        )
        assert reply.nacked <= 2000, "a call drains about as many as requested"
        assert reply.left == left - reply.nacked
        nacked, left, calls = nacked + reply.nacked, reply.left, calls + 1
        if calls % 100 == 0:
            # Producers continue during the drain.
            track(shard.acker, calls, A, "while it drains", TASK)
            assert row(shard.acker, calls, A).acked == 1
    assert nacked == count
    assert calls < 3 * count / 1000, "each call continues at the cursor, and does not rescan"
    assert take_all(shard) == count + calls // 100

    growth = used(shard) - before
    print(f"{growth:,} bytes more than before the trees, {calls} calls to drain it")
    assert growth < 512 * 1024
    counters = shard.acker.status().counters
    assert counters["expired"] == count + MAX_ROWS
