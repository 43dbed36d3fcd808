"""The rotator as a worker: any number of rotators, each tick once, outages of Redis."""

import logging
import threading

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import TRACK, columns, send, track, verdicts
from tests.transport.proxy import proxied
from tests.waiting import wait_until

A = 0x1234_5678_9ABC


def test_trees_expire_by_the_clock(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(tick_ms=50, shards=2)
    with Rotator([acker]):
        for anchor in (1, 2):
            send(acker, columns([(anchor, A, TRACK)], "t", [f"s{anchor}"]), shard=anchor % 2)
        found: list[str] = []
        wait_until(
            lambda: found.extend(o.source_id for o in acker.outcomes("t")) or len(found) == 2
        )
    assert sorted(found) == ["s1", "s2"]


def test_concurrent_rotators_tick_once(make_any_acker: MakeAcker) -> None:
    """Eight rotators at once, thirty times: no bucket is skipped, each tree has one verdict."""
    acker = make_any_acker()
    rotators = [Rotator([Acker.from_url(_url(acker), acker.namespace)]) for _ in range(8)]
    for anchor in range(1, 31):
        track(acker, anchor, A, f"s{anchor}")
        before = acker.status().shards[0].ticked_ms
        acker.connection.client.hincrby(ShardKeys(acker.namespace, 0).meta, "ticked_ms", -4_000_000)
        threads = [threading.Thread(target=rotator.step) for rotator in rotators]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert acker.status().shards[0].ticked_ms >= before
        ended = 3 if anchor >= 3 else 0
        assert acker.status().counters["expired"] == (anchor - 2 if ended else 0)
    assert len(verdicts(acker)) == 28


def _url(acker: Acker) -> str:
    options = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/0"


def test_rotator_survives_an_outage_of_redis(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acker_redis.rotator")
    direct = make_any_acker(tick_ms=20)
    with proxied(any_server.url) as proxy:
        acker = Acker.from_url(proxy.url, direct.namespace, retry_for=0)
        assert acker.config
        with Rotator([acker]):
            proxy.cut = 10**9
            wait_until(lambda: "cannot_rotate" in caplog.text)
            track(direct, 7, A, "s7")
            proxy.cut = 0
            wait_until(lambda: "rotates_again" in caplog.text)
            wait_until(lambda: direct.status().counters["expired"] == 1)


def test_dropped_namespace_does_not_stop_the_others(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    gone = Acker.from_url(any_server.url, "never-created")
    acker = make_any_acker(tick_ms=20)
    track(acker, 7, A, "s7")
    with Rotator([gone, acker]):
        wait_until(lambda: acker.status().counters["expired"] == 1)


def test_stop_ends_the_thread(make_any_acker: MakeAcker) -> None:
    rotator = Rotator([make_any_acker()]).start()
    rotator.stop()
    rotator.stop()
    assert "acker-rotator" not in {thread.name for thread in threading.enumerate()}


def test_unknown_namespace(any_server: EmbeddedRedis) -> None:
    with pytest.raises(NamespaceNotFoundError):
        Rotator([Acker.from_url(any_server.url, "absent")]).step()
