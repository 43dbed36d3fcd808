"""The first rows of a process, with a Redis that is away when they are added."""

import asyncio
import logging
import os
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from acker_redis import Bolt, MessageId
from acker_redis.aio.bolt import AsyncBolt
from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    BufferFullError,
    ConfigError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
)
from acker_redis.flows import known
from acker_redis.flows.delivery import MAX_SENDERS
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.rows import ack_row, fail_row
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.conftest import MakeAcker
from tests.producer.conftest import MakeRig
from tests.producer.rig import InThread, acks_of, tracks
from tests.producer.test_forks import in_a_fork
from tests.support import total, verdicts
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT, wait_until


@pytest.fixture
def away(proxy: Proxy) -> Proxy:
    """A way to a Redis that loses each request, until ``cut`` is 0."""
    proxy.cut = 10**9
    return proxy


@pytest.mark.parametrize("shards", [1, 8])
def test_first_rows_wait_for_redis_and_are_applied_once(
    make_rig: MakeRig, away: Proxy, shards: int
) -> None:
    rig = make_rig(away.url, shards=shards)
    producer = rig.producer(linger=0, retry_for=0)
    rows = tracks(3000)
    producer.add(rows[:1500])
    producer.add(acks_of(rows[:1000]))
    producer.add([fail_row(row.anchor, "no such address") for row in rows[1000:1500]])
    wait_until(lambda: away.lost > 3, "attempts that fail")
    assert producer.waiting >= 1500
    assert rig.calls.made == []
    away.cut = 0
    producer.flush()
    producer.add(rows[1500:])
    producer.add(acks_of(rows[1500:]))
    producer.flush()
    counted = total(rig.direct)
    assert counted["acked"] == 2500
    assert counted["failed"] == 500
    assert counted["repeated"] == counted["conflict"] == counted["orphaned"] == 0
    assert rig.given_up == []


def test_producer_begun_in_an_outage_sends_to_several_shards_at_once(
    make_rig: MakeRig, away: Proxy
) -> None:
    rig = make_rig(away.url, shards=8)
    producer = rig.producer(linger=0, retry_for=0)
    producer.add(tracks(1))
    wait_until(lambda: away.lost > 1, "an attempt that fails")
    away.cut = 0
    producer.flush()
    rig.calls.hold()
    for shard in range(8):
        producer.add(tracks(1, 8, shard))
    rig.calls.wait_for(1 + MAX_SENDERS)
    rig.calls.let_all_go()
    producer.flush()
    assert rig.calls.at_once["all"] == MAX_SENDERS


def test_row_that_may_not_wait_asks_nothing(make_rig: MakeRig, proxy: Proxy) -> None:
    """A server that hangs, without a reset: the call returns at once."""
    rig = make_rig(proxy.url)
    proxy.stall = True
    producer = rig.producer(linger=0, retry_for=0)
    (row,) = tracks(1)
    producer.add([row], wait=False)
    producer.add(acks_of([row]), wait=False)
    proxy.stall = False
    producer.flush()
    assert total(rig.direct)["acked"] == 1


def test_rows_that_wait_for_the_configuration_fill_the_buffer(
    make_rig: MakeRig, away: Proxy
) -> None:
    rig = make_rig(away.url)
    producer = rig.producer(linger=0, retry_for=0, buffer=4, max_block=0)
    rows = tracks(4)
    producer.add(rows)
    with pytest.raises(BufferFullError):
        producer.add(tracks(1))
    with pytest.raises(BufferFullError):
        producer.flush(0.05)
    away.cut = 0
    producer.flush()
    assert total(rig.direct)["tracked"] == 4


def test_close_in_an_outage_gives_the_first_rows_up(make_rig: MakeRig, away: Proxy) -> None:
    rig = make_rig(away.url)
    producer = rig.producer(linger=0, retry_for=0)
    producer.add(tracks(3))
    with pytest.raises(BufferFullError):
        producer.close(0.1)
    ((error, rows),) = rig.given_up
    assert isinstance(error, RedisUnavailableError)
    assert rows == 3


def test_missing_namespace_is_refused_at_each_row(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.direct.connection.client.flushall()
    producer = rig.producer()
    for _ in range(2):
        with pytest.raises(NamespaceNotFoundError):
            producer.add(tracks(1))
    assert producer.waiting == 0
    rig.direct.create(AckerConfig(tick_ms=3_600_000))
    producer.add(tracks(1))
    producer.flush()
    assert total(rig.direct)["tracked"] == 1


def test_wrong_password_is_refused_at_each_row(
    make_rig: MakeRig, any_server: EmbeddedRedis
) -> None:
    rig = make_rig(any_server.url.replace("//", "//guest:wrong@"))
    producer = rig.producer()
    for _ in range(2):
        with pytest.raises(RedisRefusedError, match="user or password"):
            producer.add(tracks(1))
    assert producer.waiting == 0


def test_namespace_that_is_missing_after_the_outage_is_refused(
    make_rig: MakeRig, away: Proxy
) -> None:
    rig = make_rig(away.url)
    producer = rig.producer(linger=0, retry_for=0)
    producer.add(tracks(2))
    rig.direct.connection.client.flushall()
    away.cut = 0
    with pytest.raises(NamespaceNotFoundError):
        producer.flush()
    assert [rows for _, rows in rig.given_up] == [2]
    with pytest.raises(NamespaceNotFoundError):
        producer.add(tracks(1))
    rig.direct.create(AckerConfig(tick_ms=3_600_000, shards=2))
    producer.add(tracks(9))
    producer.flush()
    assert total(rig.direct)["tracked"] == 9


def test_first_rows_of_a_forked_child_wait(make_any_acker: MakeAcker, away: Proxy) -> None:
    """The parent has sent nothing, as the main process of Celery or gunicorn."""
    direct = make_any_acker(shards=2)
    acker = Acker.from_url(away.url, direct.namespace, retry_for=0)
    producer = Producer(acker, "t", linger=0)
    reader, writer = os.pipe()
    rows = tracks(20)

    def work() -> None:
        producer.add(rows)
        producer.add(acks_of(rows))
        os.write(writer, b"x")
        producer.close(LIMIT)

    child = InThread(lambda: in_a_fork(work))
    assert os.read(reader, 1) == b"x"
    away.cut = 0
    child.join()
    for end in (reader, writer):
        os.close(end)
    assert total(direct)["acked"] == 20
    acker.close()


# Bolts: the ids of the messages that they emit.


def test_messages_emitted_in_an_outage_have_no_edge_and_complete_their_tree(
    make_any_acker: MakeAcker, away: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    direct = make_any_acker(edges=("mill", "shop"))
    caplog.set_level(logging.WARNING)
    with ExitStack() as stack:
        acker = stack.enter_context(Acker.from_url(away.url, direct.namespace, retry_for=0))
        producer = stack.enter_context(Producer(acker, "t", linger=0))
        anchor = new_anchor()
        producer.track(anchor, "s", [40])
        bolt = Bolt(producer)
        with bolt.process(MessageId({anchor: 40})) as t:
            children = [t.emit(edge="mill") for _ in range(20)]
        assert max(child[anchor] for child in children) < 1 << 55
        said = [each for each in caplog.messages if "carry no edge" in each]
        assert len(said) == 1
        away.cut = 0
        producer.flush()
        (last,) = children[1:2]
        for child in children[2:]:
            bolt.process(child).ack()
        bolt.process(children[0]).ack()
        with bolt.process(last) as t:
            named = t.emit(edge="mill")
        assert named[anchor] >> 55 == 1, "edges are read with the first row"
        bolt.process(named).ack()
        producer.flush()
    assert [v[:2] for v in verdicts(direct)] == [("ack", "completed")]


def test_message_with_a_key_waits_for_the_salt(make_any_acker: MakeAcker, away: Proxy) -> None:
    direct = make_any_acker(edges=("mill",))
    expected = Bolt(Producer(direct)).process("7:40").emit(key="k", edge="mill")
    with Acker.from_url(away.url, direct.namespace, retry_for=LIMIT) as acker:
        t = Bolt(Producer(acker)).process("7:40")
        ending = InThread(lambda: _ends(away))
        assert t.emit(key="k", edge="mill") == expected
        ending.join()


def _ends(away: Proxy) -> None:
    wait_until(lambda: away.lost > 2, "attempts that fail")
    away.cut = 0


def test_message_with_a_key_is_not_emitted_when_patience_ends(
    make_any_acker: MakeAcker, away: Proxy
) -> None:
    direct = make_any_acker()
    with Acker.from_url(away.url, direct.namespace, retry_for=0.1) as acker:
        t = Bolt(Producer(acker)).process("7:40")
        with pytest.raises(RedisUnavailableError):
            t.emit(key="k")
        assert t.processing.acked() == [ack_row(7, 40)], "no edge is left in the row"
        # A message without a tree derives no id.
        assert str(Bolt(Producer(acker)).process("").emit(key="k")) == ""
        away.cut = 0
        direct.drop()
        with pytest.raises(NamespaceNotFoundError):
            Bolt(Producer(acker)).process("7:40").emit(key="k")


def test_asyncio_message_with_a_key_says_why_it_has_no_salt(
    make_any_acker: MakeAcker, away: Proxy
) -> None:
    """emit() is not awaited, so it cannot wait: ``await acker.ids()`` does."""
    direct = make_any_acker()
    expected = Bolt(Producer(direct)).process("7:40").emit(key="k")

    async def main() -> None:
        async with AsyncAcker.from_url(away.url, direct.namespace, retry_for=0) as acker:
            bolt = AsyncBolt(AsyncProducer(acker, linger=0))
            with pytest.raises(ConfigError, match="async with"):
                bolt.process("7:40").emit(key="k")
            with pytest.raises(RedisUnavailableError, match=r"acker\.ids\(\) waits"):
                async with bolt.process("7:40") as t:
                    t.emit(key="k")
            away.cut = 0
            await acker.ids()
            async with bolt.process("7:40") as t:
                assert t.emit(key="k") == expected

    asyncio.run(main())


def test_server_that_hangs_delays_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an attempt that took 5 s, ids are drawn for 50 s without another one."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(known, "time", clock)
    flows, attempts = known.KnownNamespace("n", 0.0), 0
    for _ in range(100):
        flow = flows.fresh_ids()
        with suppress(StopIteration):
            next(flow)
            clock.now += 5.0
            attempts += 1
            flow.throw(RedisUnavailableError("no reply"))
        clock.now += 1.0
    assert attempts == 2
