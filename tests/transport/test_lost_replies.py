"""Retries after lost replies and cut requests are idempotent: each batch counts once."""

import dataclasses
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ChangedBatchError, LaneError, RedisUnavailableError
from acker_redis.protocol.commands import Call
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import tick, total
from tests.transport.proxy import Proxy, proxied
from tests.waiting import LIMIT


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    with proxied(any_server.url) as running:
        yield running


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    """An acker on the same namespace, without the proxy."""
    return make_any_acker()


@pytest.fixture
def acker(proxy: Proxy, direct: Acker) -> Iterator[Acker]:
    with Acker.from_url(proxy.url, direct.namespace, retry_for=LIMIT) as through:
        assert through.config
        yield through


def one_tree(source_id: str = "s") -> tuple[Batch, int, int]:
    anchor, first = new_anchor(), new_tuple_id()
    batch = Batch("t")
    batch.track(anchor, source_id, [first])
    return batch, anchor, first


def test_track_with_a_lost_reply_is_applied_once(acker: Acker, proxy: Proxy, direct: Acker) -> None:
    batch, _, _ = one_tree()
    proxy.swallow = 3
    assert acker.apply(batch).repeated
    assert proxy.lost == 3
    counters = total(direct)
    assert (counters["tracked"], counters["conflict"], counters["pending"]) == (1, 0, 1)


def test_ack_with_a_lost_reply_is_applied_once(acker: Acker, proxy: Proxy) -> None:
    batch, anchor, first = one_tree()
    acker.apply(batch)
    middle = new_tuple_id()
    step = Batch()
    step.ack(anchor, first, [middle])
    proxy.swallow = 2
    assert acker.apply(step).repeated
    last = Batch()
    last.ack(anchor, middle)
    assert acker.apply(last).acked == 1


def test_request_cut_in_half_is_sent_again(acker: Acker, proxy: Proxy) -> None:
    batch, _, _ = one_tree()
    proxy.cut = 2
    applied = acker.apply(batch)
    assert (applied.tracked, applied.repeated) == (1, False)


def test_thousands_of_trees_over_a_lossy_connection(
    acker: Acker, proxy: Proxy, direct: Acker
) -> None:
    """A reply is lost or a request cut in every fifth call: all trees are acked, none twice."""
    chance = random.Random(7)
    calls = trees = 0
    for _ in range(150):
        anchors = {new_anchor(): (new_tuple_id(), new_tuple_id()) for _ in range(20)}
        track, first, second = Batch("t"), Batch(), Batch()
        for anchor, (a, b) in anchors.items():
            track.track(anchor, str(anchor), [a])
            first.ack(anchor, a, [b])
            second.ack(anchor, b)
        for batch in (track, first, second):
            proxy.swallow += chance.random() < 0.1
            proxy.cut += chance.random() < 0.1
            acker.apply(batch)
            calls += 1
        trees += len(anchors)
    assert proxy.lost > calls / 10
    counters = total(direct)
    assert counters["acked"] == counters["tracked"] == trees
    assert counters["pending"] == counters["conflict"] == 0
    found = [o.source_id for o in direct.outcomes("t")]
    assert len(found) == len(set(found)) == trees


def test_retries_of_a_default_redis_client_are_idempotent(proxy: Proxy, direct: Acker) -> None:
    """redis.Redis() retries a command after a lost reply, up to ten times."""
    port = int(proxy.url.rsplit(":", 1)[1].split("/")[0])
    client = redis.Redis(host="127.0.0.1", port=port)
    with Acker(client, direct.namespace) as acker:
        batch, anchor, first = one_tree()
        acker.apply(batch)
        middle, step, last = new_tuple_id(), Batch(), Batch()
        step.ack(anchor, first, [middle])
        proxy.swallow = 2
        assert acker.apply(step).repeated
        last.ack(anchor, middle)
        assert acker.apply(last).acked == 1
    assert proxy.lost == 2


def test_lane_used_by_two_processes_is_refused(direct: Acker) -> None:
    """As after a machine was cloned: the lane's number in Redis is above the batch's number."""
    batch, _, _ = one_tree()
    direct.apply(batch)
    for _ in range(2):
        later, _, _ = one_tree()
        direct.apply(later)
    assert batch.sent
    for seq, error in ((2, LaneError), (3, ChangedBatchError)):
        clone, _, _ = one_tree()
        clone.sent = dataclasses.replace(batch.sent, seq=seq, replies={})
        with pytest.raises(error):
            direct.apply(clone)
    assert total(direct)["tracked"] == 3


def test_batch_in_doubt_may_be_applied_again(proxy: Proxy, direct: Acker) -> None:
    batch, _, _ = one_tree()
    with Acker.from_url(proxy.url, direct.namespace, retry_for=0) as acker:
        assert acker.config
        proxy.swallow = 1
        with pytest.raises(RedisUnavailableError):
            acker.apply(batch)
        assert acker.apply(batch).repeated
    assert total(direct)["tracked"] == 1


def test_batch_in_doubt_is_not_applied_after_a_later_one(proxy: Proxy, direct: Acker) -> None:
    """Its number is below the lane's by then, so Redis cannot tell whether it was applied."""
    lost, anchor, _ = one_tree("lost")
    with Acker.from_url(proxy.url, direct.namespace, retry_for=0) as acker:
        assert acker.config
        proxy.cut = 1
        with pytest.raises(RedisUnavailableError):
            acker.apply(lost)
        later, _, _ = one_tree("later")
        acker.apply(later)
        with pytest.raises(LaneError, match="lane"):
            acker.apply(lost)
    assert total(direct)["tracked"] == 1


def test_batch_is_not_retried_after_its_fence_may_have_expired(
    proxy: Proxy, make_any_acker: MakeAcker
) -> None:
    """Two buckets of 300 ms: after one tick the fence may have expired; the batch is given up."""
    direct = make_any_acker(buckets=2, tick_ms=300)
    batch, anchor, _ = one_tree()
    with Acker.from_url(proxy.url, direct.namespace, retry_for=10**6) as acker:
        assert acker.config
        proxy.cut = 10**6
        began = time.monotonic()
        with pytest.raises(RedisUnavailableError):
            acker.apply(batch)
        proxy.cut = 0
        tick(direct, 2)
        while time.monotonic() < began + 0.3:
            time.sleep(0.01)
        with pytest.raises(LaneError, match="too long ago"):
            acker.apply(batch)
    assert total(direct)["tracked"] == 0


def test_recreated_namespace_may_have_a_shorter_fence(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the old configuration, the batch could be retried for an hour."""
    acker = make_any_acker()
    assert acker.config.fence_ms > 3_600_000
    acker.connection.client.flushall()
    with Acker(acker.connection.client, acker.namespace) as other:
        other.create(AckerConfig(buckets=2, tick_ms=50))
        run = acker.connection.run

        def late(call: Call) -> Any:
            reply = run(call)
            if call.script == "apply":
                time.sleep(0.1)
                raise RedisUnavailableError("the reply was lost")
            return reply

        monkeypatch.setattr(acker.connection, "run", late)
        batch, _, _ = one_tree()
        with pytest.raises(LaneError, match="too long ago"):
            acker.apply(batch)
        assert total(other)["tracked"] == 1


def test_each_part_has_its_own_retry_deadline(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first shard is slow: an unsent part may still be sent, a sent part is not retried."""
    acker = make_any_acker(shards=2, buckets=2, tick_ms=100)
    batch = Batch("t")
    batch.track(2, "even", [9])
    batch.track(3, "odd", [9])
    run = acker.connection.run
    sent: list[str] = []

    def slow(call: Call) -> Any:
        reply = run(call)
        if call.script == "apply":
            sent.append(call.keys[0])
            time.sleep(0.15)
            if call.keys == ShardKeys(acker.namespace, 1).both:
                raise RedisUnavailableError("the reply of the second was lost")
        return reply

    monkeypatch.setattr(acker.connection, "run", slow)
    with pytest.raises(RedisUnavailableError):
        acker.apply(batch)
    with pytest.raises(LaneError, match="too long ago"):
        acker.apply(batch)
    assert len(sent) == len(set(sent)) == 2
    assert total(acker)["tracked"] == 2


def test_threads_share_an_acker(direct: Acker) -> None:
    """One lane has one call in flight: no batch overtakes another and fences it out."""

    def work() -> None:
        for _ in range(50):
            batch, anchor, first = one_tree()
            direct.apply(batch)
            done = Batch()
            done.ack(anchor, first)
            direct.apply(done)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counters = total(direct)
    assert counters["tracked"] == counters["acked"] == 400
    assert counters["repeated"] == 0


def test_a_fork_while_another_thread_applies(direct: Acker) -> None:
    """A thread that does not exist in the child holds the child's copy of the lock."""
    with direct._lane.lock:
        child = multiprocessing.get_context("fork").Process(target=_track_ten, args=(direct,))
        child.start()
        child.join(LIMIT)
        if child.is_alive():
            child.kill()
    assert child.exitcode == 0
    assert total(direct)["tracked"] == 10


def _track_ten(acker: Acker) -> None:
    for _ in range(10):
        batch, _, _ = one_tree()
        assert not acker.apply(batch).repeated


def test_forked_child_gets_its_own_lane(direct: Acker) -> None:
    batch, _, _ = one_tree()
    direct.apply(batch)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_track_ten, args=(direct,)) for _ in range(3)]
    for child in children:
        child.start()
    _track_ten(direct)
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert total(direct)["tracked"] == 41
