"""The work of each role, done by its user with the clients of this package."""

import asyncio
from typing import Any

from acker_redis import (
    Acker,
    AckerConfig,
    Backoff,
    Batch,
    Bolt,
    GroupResult,
    Producer,
    Rotator,
    Source,
)
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.batching.sent import Part
from acker_redis.flows.groups import read_groups, read_members
from acker_redis.flows.namespace_list import read_names
from acker_redis.ops import acl
from acker_redis.ops.reshard import reshard
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import ShardKeys, channel
from acker_redis.protocol.rows import Columns
from tests.deploy.users import Users
from tests.support import columns
from tests.waiting import LIMIT

SHARDS = 4
SOURCE = "shop"


def create(users: Users) -> None:
    """Admin: create the namespace, and read the state of the server."""
    with Acker.from_url(users.url("admin"), users.namespace, timeout=60) as acker:
        assert acker.create(AckerConfig(shards=SHARDS, tick_ms=3_600_000))
        assert users.namespace in acker.connection.drive(read_names())
        client = acker.connection.client
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert acker.connection.version()
        client.slowlog_get(1)
        client.client_list()
        if len(users.ports) == 1:
            assert client.execute_command("ACL", "WHOAMI").decode() == users.name("admin")
            client.latency_latest()


def produce(users: Users) -> None:
    """Producer: a bolt with threads, a durable lane, a partial block, show of a tree."""
    with Acker.from_url(users.url("producer"), users.namespace, timeout=60) as acker:
        with Producer(acker, SOURCE, linger=0) as producer:
            anchor, first = new_anchor(), new_tuple_id()
            producer.track(anchor, "by a producer", [first])
            producer.flush()
            with Bolt(producer).process(f"{anchor}:{first}") as done:
                done.fail("broken")
        anchors = acker.track_block(SOURCE, "a block", [5, 0, 6], present=[0, 2])
        late, wrong = Batch(), Batch()
        late.ack(anchors[0], 5)
        wrong.fail(anchors[2], "broken too", 6)
        assert acker.apply(late).acked == 0
        assert acker.apply(wrong).failed == 1
        part = Part(1, _rows(SHARDS + 1))
        assert acker.apply_part(part, Fence("@lane", 1, "aa")).tracked == 1
        assert acker.lane("@lane") == {1: (1, "aa")}
        tree = acker.show(SHARDS + 1)
        assert tree is not None
        assert tree.source_id == "in a lane"
        assert acker.status().counters["failed"] == 2


def _rows(anchor: int) -> Columns:
    return columns([(anchor, 9, 1)], SOURCE, ["in a lane"])


def source(users: Users) -> None:
    """Source: acked records and a replayed one; its verdicts on pub/sub, and taken."""
    with Acker.from_url(users.url("source"), users.namespace, timeout=60) as acker:
        live = _listen(acker.connection.client, users)
        acked: list[str] = []
        groups: list[GroupResult] = []
        with Producer(acker, linger=0) as producer:
            bolt = Bolt(producer)

            def send(record: Any, ids: Any) -> None:
                with bolt.process(*ids) as message:
                    if record.attempt == 1 and record.value == "twice":
                        message.fail("once more")

            with Source(
                acker,
                SOURCE,
                send,
                on_ack=lambda record: acked.append(record.source_id),
                backoff=Backoff(first=0.01),
                on_group=groups.append,
            ) as records:
                with records.group("both") as group:
                    group.emit("one", "once")
                    group.emit("two", "twice")
                assert records.join(LIMIT)
                with records.group("both"):
                    pass  # reads the reported group
        assert {"one", "two"} <= set(acked)
        assert [each.acked for each in groups] == [2]
        if live:
            heard = [live.get_message(timeout=LIMIT) for _ in range(2)]
            assert {m["type"] for m in heard if m} == {"subscribe", "psubscribe"}
            message = live.get_message(timeout=LIMIT)
            assert message["channel"].startswith(f"acker:{users.namespace}:".encode())
            live.unsubscribe()
            live.punsubscribe()
            live.close()
        # Spark's source of verdicts also sends these commands.
        keys = [ShardKeys(users.namespace, shard).outcomes(SOURCE) for shard in range(SHARDS)]
        for key in keys:
            acker.connection.command("XREVRANGE", key, "+", "-", "COUNT", 1)
        waiting = acker.outcomes(SOURCE)
        while entries := waiting.read():
            waiting.take(entries)
        assert acker.status().backlog == {SOURCE: 0}


def _listen(client: Any, users: Users) -> Any:
    if not hasattr(client, "connection_pool"):
        return None  # on a cluster any node serves pub/sub
    live = client.pubsub()
    live.subscribe(channel(users.namespace, "ack", SOURCE))
    # The pattern must be exactly the one of the rule.
    live.psubscribe(acl.channels(None if users.all_namespaces else users.namespace))
    return live


def by_asyncio(users: Users) -> None:
    """Source, producer and viewer with asyncio."""

    async def run() -> None:
        url, name = users.url, users.namespace
        async with (
            AsyncAcker.from_url(url("source"), name, timeout=60) as mine,
            AsyncAcker.from_url(url("producer"), name, timeout=60) as theirs,
            AsyncAcker.from_url(url("viewer"), name, timeout=60) as looking,
            AsyncProducer(theirs, linger=0) as producer,
        ):
            bolt = AsyncBolt(producer)

            async def send(record: Any, ids: Any) -> None:
                async with bolt.process(*ids):
                    pass

            async with AsyncSource(mine, "async-shop", send) as records:
                for number in range(10):
                    await records.emit(f"order-{number}")
                assert await records.join(LIMIT)
            assert (await looking.status()).backlog["async-shop"] == 0
            assert await looking.show(12345) is None

    asyncio.run(run())


def rotate(users: Users) -> None:
    """Rotator: tick until all trees and blocks have expired."""
    with Acker.from_url(users.url("producer"), users.namespace, timeout=60) as acker:
        batch = Batch(SOURCE, ids=acker.ids)
        batch.track(new_anchor(), "left", [new_tuple_id()])
        batch.track_block("left too", [5, 0, 6], present=[0, 2])
        acker.apply(batch)
    with Acker.from_url(users.url("rotator"), users.namespace, timeout=60) as acker:
        for _ in range(acker.config.buckets):
            Rotator(acker).step(force=True)
        status = acker.status()
        assert (status.pending, status.expiring) == (0, 0)
        assert status.counters["expired"] >= 3
        if users.all_namespaces:
            assert users.namespace in acker.connection.drive(read_names())


def view(users: Users) -> None:
    """Viewer: read the state, a tree, and the waiting verdicts."""
    with Acker.from_url(users.url("viewer"), users.namespace, timeout=60) as acker:
        assert acker.status().backlog[SOURCE] >= 3
        waiting = acker.outcomes(SOURCE).read()
        assert waiting
        assert acker.outcomes(SOURCE).read() == waiting
        assert acker.show(new_anchor()) is None
        assert acker.page().next is None
        assert acker.find("one").complete
        assert acker.oldest() is None
        (group,) = acker.connection.drive(read_groups(acker.flows))
        members = acker.connection.drive(read_members(acker.flows, SOURCE, group.name, 1))
        assert members.acked == 2
        live = _listen(acker.connection.client, users)
        if live:
            live.close()
        if users.all_namespaces:
            assert users.namespace in acker.connection.drive(read_names())


def end(users: Users) -> None:
    """Admin: change the configuration, reshard to more shards, drop the namespace."""
    with Acker.from_url(users.url("source"), users.namespace, timeout=60) as acker:
        waiting = acker.outcomes(SOURCE)
        while entries := waiting.read():
            waiting.take(entries)
    with Acker.from_url(users.url("admin"), users.namespace, timeout=60) as acker:
        assert acker.configure(high_water=5000).high_water == 5000
        assert reshard(acker, 2 * SHARDS).shards == 2 * SHARDS
        acker.drop()
        assert users.namespace not in acker.connection.drive(read_names())


def all_roles(users: Users) -> None:
    """Run the work of all roles, in order."""
    for work in (create, produce, source, by_asyncio, rotate, view, end):
        work(users)
