"""The rotator writes the history of a namespace, and nothing depends on it."""

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from acker_redis import SourceEdge
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError
from acker_redis.flows.history import (
    Readings,
    history_of,
    losses_of,
    objectives_of,
    read_history,
    read_slo,
)
from acker_redis.protocol import commands
from acker_redis.protocol.history import HOUR_MS, HOURS, MINUTE_MS, MINUTES, Point, name_of, parse
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.slo import OTHERS, Objective
from acker_redis.rotator.history import HistoryJob, write_once
from acker_redis.rotator.jobs import Home
from acker_redis.rotator.service import serve
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.rotator.test_service import serving
from tests.support import fail, row, tick, total, track, track_block
from tests.waiting import wait_until


def write(acker: Acker) -> Point:
    """Let a rotator write the point of this minute; return the stored one."""
    job, calls = HistoryJob(Home(acker.connection, acker.namespace)), 1
    while (wait := job.ask()) is None:
        calls += 1
    assert 0 < wait <= 70
    return stored(acker)


def stored(acker: Acker) -> Point:
    """Return the last point, which both rings have."""
    values = acker.connection.client.hgetall(ShardKeys(acker.namespace, 0).history)
    points = [point for value in values.values() if (point := parse(value))]
    last = max(points, key=lambda point: (point.at_ms, point.settings is not None))
    for unit in ("m", "h"):
        point = parse(values[name_of(unit, last.at_ms).encode()])  # type: ignore[arg-type]
        assert point
        assert (point.at_ms, point.tracked, point.open) == (last.at_ms, last.tracked, last.open)
    return last


def age(acker: Acker, ms: int) -> None:
    """Let the stored points be older by ``ms``."""
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).history
    moved: dict[str, bytes] = {}
    for field, value in sorted(client.hgetall(key).items(), key=lambda item: item[1][1:7]):
        at = int.from_bytes(value[1:7], "big") - ms
        moved[name_of(chr(field[0]), at)] = value[:1] + at.to_bytes(6, "big") + value[7:]  # type: ignore[arg-type]
    client.delete(key)
    if moved:
        client.hset(key, mapping=moved)


def put(acker: Acker, ago_ms: int, now: Point, **changed: Any) -> None:
    """Store a point as a rotator would have written it ``ago_ms`` before ``now``."""
    point = replace(now, at_ms=now.at_ms - ago_ms, **changed)
    key = ShardKeys(acker.namespace, 0).history
    acker.connection.client.hset(key, mapping=point.fields())


def test_point_has_the_sums_of_all_shards(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    batch, bolt = Batch("shop"), Batch()
    for anchor in range(1, 13):
        batch.track(anchor, f"order-{anchor}", [40])
    acker.apply(batch)
    for anchor in range(1, 6):
        bolt.ack(anchor, 40)
    bolt.fail(6, "no")
    acker.apply(bolt)
    keys = ShardKeys(acker.namespace, 0)
    for source, down in (("shop", 9.0), ("mail", None)):
        edges = [SourceEdge("", 10, 3, 2, down), SourceEdge("a", None, 1, 0, None)]
        acker.connection.run(commands.report(keys, source, edges))
    point, status = write(acker), acker.status()
    assert (point.window, point.in_flight, point.held, point.down) == (20, 8, 4, 1)
    assert (point.tracked, point.acked, point.failed, point.open) == (12, 5, 1, 6)
    assert (point.pending, point.waiting) == (status.pending, 6)
    assert point.sources == {"shop": (6, 5)}
    assert point.settings
    assert point.settings.shards == 4
    assert point.run != b"\0\0"


def test_second_rotator_writes_nothing_in_the_same_minute(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    key, client = ShardKeys(acker.namespace, 0).history, acker.connection.client
    for anchor in itertools.count(1):
        first = write(acker)
        track(acker, anchor, 40)
        again = write(acker)
        if again.at_ms // MINUTE_MS == first.at_ms // MINUTE_MS:
            break  # else a minute has begun meanwhile, and both points are right
    assert again == first
    client.delete(key)
    assert write(acker).tracked == first.tracked + 1


def test_dropped_namespace_has_no_history(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=2)
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).history
    write(acker)
    assert client.hlen(key) == 2
    acker.drop()
    assert not client.exists(key)
    # The drop comes between the reading and the write.
    again = Acker(client, acker.namespace)
    again.create()
    job = HistoryJob(Home(again.connection, again.namespace))
    run = again.connection.run

    def run_and_drop(call: Any) -> Any:
        reply = run(call)
        again.connection.run = run  # type: ignore[method-assign]
        again.drop()
        return reply

    again.connection.run = run_and_drop  # type: ignore[method-assign]
    assert job.ask() is not None
    assert not client.exists(key)


def test_service_writes_a_point_and_many_rotators_agree(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    acker = make_any_acker(shards=2)
    key, client = ShardKeys(acker.namespace, 0).history, acker.connection.client
    with serving(any_server.url, None), serving(any_server.url, [acker.namespace]):
        wait_until(lambda: client.hlen(key) >= 2)
    assert stored(acker).tracked == 0


def test_rotator_once_writes_a_point(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    client = acker.connection.client
    assert serve(client, [acker.namespace], stop=threading.Event(), once=True) == 0
    assert client.hlen(ShardKeys(acker.namespace, 0).history) == 2


def test_history_that_is_refused_is_logged_once_and_tried_again(
    make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    acker = make_any_acker()
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).history
    caplog.set_level("INFO", "acker_redis.rotator")
    client.set(key, "tampered")
    job = HistoryJob(Home(acker.connection, acker.namespace))
    for _ in range(3):
        assert job.ask() == 60.0
    assert [str(record.msg).split()[0] for record in caplog.records] == ["no_history"]
    client.delete(key)
    assert job.ask() is not None
    assert str(caplog.records[-1].msg).split()[0] == "history_again"
    write_once([Home(acker.connection, "nowhere")], threading.Event())


ACTIONS: list[Callable[[Acker, int], object]] = [
    lambda acker, n: track(acker, n, 40, task=f"t{n % 2}"),
    lambda acker, n: track(acker, n, 0),
    lambda acker, n: row(acker, max(1, n - 3), 40),
    lambda acker, n: fail(acker, max(1, n - 2)),
    lambda acker, n: track(acker, max(1, n - 1), 7),
    lambda acker, n: track_block(acker, n, [40, 0, 0]),
    lambda acker, n: tick(acker),
]


def test_tracked_is_accounted_for_at_every_bucket(make_any_acker: MakeAcker) -> None:
    """Of random work on a real server, over a failover to an older state; read as a chart is."""
    acker = make_any_acker(high_water=20)
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    chance, opened = random.Random(7), [0]
    saved: dict[bytes, bytes] = {}
    for number in range(1, 61):
        for step in range(3):
            try:
                chance.choice(ACTIONS)(acker, 3 * number + step)
            except AckerError:
                continue
        if number == 20:
            saved = {k: client.dump(k) for k in client.scan_iter(f"{keys.prefix}*")}
        if number == 40:
            for key in client.scan_iter(f"{keys.prefix}*"):
                if key != keys.history.encode():
                    client.delete(key)
            for key, value in saved.items():
                if key != keys.history.encode():
                    client.restore(key, 0, value)
        age(acker, MINUTE_MS)
        client.hdel(keys.history, name_of("m", acker.status().shards[0].now_ms))
        point = write(acker)
        all_ = total(acker)  # it checks the open trees against the records of the shard
        assert point.tracked == all_["tracked"]
        opened.append(point.open)
    found = history_of(acker.connection.drive(read_history(acker.flows, "24h")), "24h")
    buckets = found.buckets[:-1]  # the last one ends now
    assert len(buckets) == 59
    marked = 0
    for bucket, before in zip(buckets, opened[1:], strict=False):
        grown = bucket.gauges["open"] - before
        if "reset" in bucket.marks:
            marked += 1
        else:
            assert bucket.counts["tracked"] == bucket.ended + grown
        assert not bucket.gap
    assert marked == 1
    whole, *sources = objectives_of(acker.connection.drive(read_slo(acker.flows)))
    assert whole.share.ended >= sum(each.share.ended for each in sources[:-1])


def ended(acker: Acker, first: int, acked: int, failed: int = 0) -> None:
    """Track trees of source ``t``, and let them end."""
    for anchor in range(first, first + acked + failed):
        track(acker, anchor, 40)
        row(acker, anchor, 40) if anchor < first + acked else fail(acker, anchor)


def slo(acker: Acker, into_ms: int, first: Point, last: Point) -> list[Objective]:
    """Return the objectives, read ``into_ms`` into an hour, with points of the last two minutes."""
    status = acker.connection.drive(read_slo(acker.flows)).status
    now_ms = status.shards[0].now_ms // HOUR_MS * HOUR_MS + into_ms
    shard = replace(status.shards[0], now_ms=now_ms)
    # Points of one hour have the same field, and the last one stays.
    values = replace(first, at_ms=now_ms - MINUTE_MS - 1).fields()
    values |= replace(last, at_ms=now_ms - 1).fields()
    minutes, hours = ([v for name, v in values.items() if name[0] == unit] for unit in "mh")
    return objectives_of(Readings(replace(status, shards=(shard,)), minutes, hours))


# In the middle of an hour, and after its first and before its second minute has ended.
into_an_hour = pytest.mark.parametrize("into_ms", [30 * MINUTE_MS, 1, MINUTE_MS - 1, MINUTE_MS])


@into_an_hour
def test_objective_of_the_first_hour_counts_from_its_beginning(
    make_any_acker: MakeAcker, into_ms: int
) -> None:
    """The point of an hour is written again each minute: it cannot be the beginning of its hour."""
    acker = make_any_acker()
    ended(acker, 1, 98)
    first = write(acker)
    age(acker, MINUTE_MS)
    ended(acker, 101, 1, failed=1)
    whole, source = slo(acker, into_ms, first, write(acker))
    assert (whole.share.ended, whole.share.good) == (100, 99)
    assert whole.share.over_ms > MINUTE_MS
    assert (source.source, source.share.ended, source.share.good) == ("t", 100, 99)


@into_an_hour
def test_objective_of_an_old_namespace_with_a_new_history_has_no_older_trees(
    make_any_acker: MakeAcker, into_ms: int
) -> None:
    acker = make_any_acker(tick_ms=60_000)
    ended(acker, 1, 50)
    for _ in range(3):
        tick(acker)
    first = write(acker)
    age(acker, MINUTE_MS)
    ended(acker, 101, 1, failed=1)
    whole, source = slo(acker, into_ms, first, write(acker))
    assert (whole.share.ended, whole.share.good) == (2, 1)
    # Only points of hours know the sources, and the first point may be one of a minute.
    two_hours = into_ms <= MINUTE_MS
    assert (source.source, source.share.ended) == ("t" if two_hours else OTHERS, 2)


def test_losses_are_those_of_the_minutes(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    write(acker)
    age(acker, MINUTE_MS)
    ended(acker, 1, 3)
    write(acker)
    age(acker, MINUTE_MS)
    ended(acker, 101, 3, failed=2)
    found = losses_of(acker.connection.drive(read_slo(acker.flows)))
    assert found
    assert (found.ended, found.nacked, found.since_known) == (8, 2, True)


def test_ring_is_bounded(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).history
    now = write(acker)
    for ago in range(MINUTES * 33):
        at = now.at_ms - ago * MINUTE_MS
        if ago < 2 * MINUTES or ago % 60 == 0:
            fields = Point(**{n: getattr(now, n) for n in Point.__slots__} | {"at_ms": at}).fields()
            client.hsetnx(key, *next(iter(fields.items())))
            client.hsetnx(key, *list(fields.items())[1])
    assert client.hlen(key) == MINUTES + HOURS
