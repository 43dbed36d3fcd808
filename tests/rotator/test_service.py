"""The rotator as a service: many namespaces, drains by turns, hanging calls, and its end."""

import io
import itertools
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import find_server
from acker_redis.errors import ConfigError
from acker_redis.flows.drain import ShardRotation
from acker_redis.logs import Event, set_up
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.rotator import heartbeat
from acker_redis.rotator import service as rotator_service
from acker_redis.rotator.jobs import Pace
from acker_redis.rotator.service import serve
from acker_redis.sync.client import Acker
from acker_redis.transport.connect import connect
from proof.simulate.redis_shard import glob
from tests.cluster.servers import Cluster, slot_of, spread
from tests.conftest import MakeAcker, missing
from tests.support import TRACK, columns, rotate, send, track, verdicts
from tests.transport.proxy import proxied
from tests.waiting import LIMIT, wait_until

A = 0x1234_5678_9ABC
QUICK = Pace(look_every=0.02, follow_every=0.02)


@contextmanager
def serving(
    url: str, namespaces: list[str] | None, timeout: float = LIMIT, **how: Any
) -> Iterator[threading.Event]:
    """Run a service in a thread; it must return 0 when it is stopped."""
    stop, code = threading.Event(), []
    how = {"pace": QUICK, **how}

    def run() -> None:
        code.append(serve(connect(url, timeout), namespaces, stop=stop, **how))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()
    assert code == [0]


class Seen:
    """The log events, by name."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "acker_redis.rotator")
        self._caplog = caplog

    def all(self, *names: str) -> list[Event]:
        messages = [record.msg for record in list(self._caplog.records)]
        return [m for m in messages if isinstance(m, Event) and m.name in names]

    def fields(self, name: str) -> dict[str, Any]:
        """Return the fields of the only event of that name."""
        (event,) = self.all(name)
        return event.fields


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Seen:
    return Seen(caplog)


def expired(acker: Acker) -> int:
    return acker.status().counters["expired"]


def drop(acker: Acker) -> None:
    """Delete the keys of a namespace."""
    client = acker.connection.client
    client.srem(NAMESPACES, acker.namespace)
    client.delete(*client.scan_iter(glob(f"acker:{{{acker.namespace}:") + "*"))


def fill(acker: Acker, records: int) -> None:
    """Put records without a tree into the expiring bucket."""
    fields = {number.to_bytes(8, "big"): b"\0" * 20 for number in range(1, records + 1)}
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).expiring, mapping=fields)


def test_service_follows_created_and_dropped_namespaces(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    first = make_any_acker(tick_ms=20)
    track(first, 7, A, "s7")
    with serving(any_server.url, None):
        wait_until(lambda: expired(first))
        later = make_any_acker(tick_ms=20, shards=2)
        for shard in (0, 1):
            send(later, columns([(8 + shard, A, TRACK)], "t", [f"s{shard}"]), shard=shard)
        wait_until(lambda: expired(later) == 2)
        drop(first)
        wait_until(lambda: seen.all("is_gone"))
        assert seen.fields("is_gone") == {"namespace": first.namespace}
        drop(later)
        again = Acker.from_url(any_server.url, later.namespace)
        again.create(AckerConfig(tick_ms=20, shards=8))
        send(again, columns([(15, A, TRACK)], "t", ["s15"]), shard=7)
        wait_until(lambda: expired(again) == 1)
        again.close()
    assert not seen.all("not_there", "cannot_rotate")
    assert seen.all("rotates")[-1].fields == {"namespace": later.namespace, "shards": 8}


def test_missing_named_namespace_is_awaited_and_logged_once(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    other = make_any_acker(tick_ms=20)
    track(other, 7, A, "s7")
    with serving(any_server.url, ["later", other.namespace]):
        wait_until(lambda: expired(other))
        wait_until(lambda: seen.all("not_there"))
        with Acker.from_url(any_server.url, "later") as late:
            late.create(AckerConfig(tick_ms=20))
            track(late, 8, A, "s8")
            wait_until(lambda: expired(late))
    assert seen.fields("not_there")["namespace"] == "later"
    assert not seen.all("cannot_rotate")


def test_long_drain_delays_no_other_shard(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    long, other = make_any_acker(), make_any_acker(tick_ms=1)
    fill(long, 3000)
    pace = Pace(records=1, look_every=0.02)
    with serving(any_server.url, [long.namespace, other.namespace], pace=pace):
        wait_until(lambda: seen.all("drain"))
    order = [event.fields["namespace"] for event in seen.all("tick", "drain")]
    assert order.index(long.namespace) > 5
    assert set(order[: order.index(long.namespace)]) == {other.namespace}
    drained = seen.fields("drain")
    assert drained["orphaned"] == 3000
    # HSCAN returns whole buckets of the hash table, which hold several records: in Valkey 7 and
    # more.
    assert 100 < drained["calls"] <= 3001 + 1


def test_tick_event_has_lateness_and_drain_counts(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """As JSON lines: an hour late and not caught up, with expired trees and number of calls."""
    acker, out = make_any_acker(buckets=2), io.StringIO()
    for anchor in (1, 2, 3):
        track(acker, anchor, A, f"s{anchor}")
    rotate(acker)
    acker.connection.client.hincrby(ShardKeys(acker.namespace, 0).meta, "ticked_ms", -7_200_000)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up("info", "json", out)
        assert serve(acker.connection.client, None, stop=threading.Event(), once=True) == 0
    finally:
        root.handlers = before
        root.setLevel(level)
    (line,) = out.getvalue().splitlines()
    told = json.loads(line)
    assert 3_600_000 <= told.pop("late_ms") < 3_700_000
    assert told.pop("drain_ms") >= 0
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning", "logger": "acker_redis.rotator", "event": "tick", "shard": 0,
        "namespace": acker.namespace, "expired": 3, "acked": 0, "orphaned": 0, "calls": 2,
    }  # fmt: skip
    assert len(verdicts(acker)) == 3


def test_once_ticks_and_drains_and_returns_an_exit_code(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    """It ticks where a tick is due, and drains; the exit code says whether a shard failed."""
    acker = make_any_acker(shards=2)
    stop, client = threading.Event(), acker.connection.client
    assert serve(client, [acker.namespace], stop=stop, once=True) == 0
    assert not seen.all("tick", "drain")
    fill(acker, 2500)
    broken = ShardKeys(acker.namespace, 1)
    client.hset(broken.meta, "schema", 9)
    assert serve(client, None, stop=stop, once=True) == 1
    assert seen.fields("drain")["orphaned"] == 2500
    assert seen.fields("cannot_rotate")["shard"] == 1
    assert serve(client, ["absent"], stop=stop, once=True) == 1
    client.sadd(NAMESPACES, "being-dropped")
    client.hset(broken.meta, "schema", 2)
    assert serve(client, None, stop=stop, once=True) == 0
    stop.set()
    assert serve(client, None, stop=stop, once=True) == 1
    with pytest.raises(ConfigError, match="a namespace is"):
        serve(client, ["no name"], stop=stop)


def test_unreachable_redis_is_logged_once_per_outage(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    acker = make_any_acker(shards=16, tick_ms=20)
    with proxied(any_server.url) as proxy, serving(proxy.url, [acker.namespace]):
        wait_until(lambda: seen.all("rotates"))
        proxy.cut = 10**9
        wait_until(lambda: proxy.lost > 25)
        proxy.cut = 0
        wait_until(lambda: seen.all("rotates_again"))
    assert len(seen.all("cannot_rotate")) == 1
    where = seen.fields("cannot_rotate")["where"]
    assert seen.fields("rotates_again")["where"] == where == proxy.url[8:-2]


def test_refused_shard_delays_no_other_shard(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    broken, other = make_any_acker(tick_ms=1), make_any_acker(tick_ms=1)
    client, keys = broken.connection.client, ShardKeys(broken.namespace, 0)
    client.set(keys.outcomes("t"), "no stream")
    fields = {b"\1" * 8: b"\0" * 19 + b"\1t" + b"source"}
    client.hset(keys.expiring, mapping=fields)
    with serving(any_server.url, None):
        wait_until(lambda: seen.all("cannot_rotate"))
        told = len(seen.all("tick"))
        wait_until(lambda: len(seen.all("tick")) > told + 5)
        client.delete(keys.outcomes("t"))
        wait_until(lambda: seen.all("rotates_again"))
        wait_until(lambda: expired(broken) == 1)
    assert len(seen.all("cannot_rotate")) == 1
    assert {e.fields["namespace"] for e in seen.all("tick")} >= {other.namespace}


def test_service_stops_after_the_current_call(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    fill(acker, 2000)
    reply, calls, left = ShardRotation.reply, itertools.count(1), threading.Event()
    begun = threading.Event()

    def tenth_is_the_last(self: ShardRotation, *args: Any) -> Any:
        if next(calls) == 10:
            begun.wait(LIMIT)  # until `stop` has its value
            stop.set()
            left.wait(LIMIT)
        return reply(self, *args)

    leave = rotator_service.Service._leave

    def leaves(self: Any) -> None:
        leave(self)
        left.set()

    monkeypatch.setattr(ShardRotation, "reply", tenth_is_the_last)
    monkeypatch.setattr(rotator_service.Service, "_leave", leaves)
    with serving(any_server.url, [acker.namespace], pace=Pace(records=1)) as stop:
        begun.set()
        wait_until(left.is_set)
    assert next(calls) == 11, "no call started after that"
    assert 0 < acker.status().expiring < 2000
    assert not [t for t in threading.enumerate() if t.name.startswith("acker-rotator")]


def test_unexpected_exception_ends_no_rotator(
    make_any_acker: MakeAcker,
    any_server: EmbeddedRedis,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acker = make_any_acker(tick_ms=20)
    track(acker, 7, A, "s7")
    failing = [MemoryError(), ValueError("what"), RecursionError()]
    follow = rotator_service.Service._follow

    def broken(self: Any, job: Any, now: float) -> Any:
        if failing:
            raise failing.pop()
        return follow(self, job, now)

    monkeypatch.setattr(rotator_service.Service, "_follow", broken)
    with serving(any_server.url, [acker.namespace]):
        wait_until(lambda: expired(acker) and seen.all("rotates_again"))
    assert len(seen.all("cannot_rotate")) == len(seen.all("rotates_again")) == 1


def test_service_works_with_one_thread(
    make_any_acker: MakeAcker,
    any_server: EmbeddedRedis,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acker, begin, begun = make_any_acker(tick_ms=20), rotator_service._begin, []
    track(acker, 7, A, "s7")

    def scarce(name: str, *args: Any) -> threading.Thread:
        if "worker" in name and "acker-rotator-worker" in begun:
            raise RuntimeError("can't start new thread")
        begun.append(name)
        return begin(name, *args)

    monkeypatch.setattr(rotator_service, "_begin", scarce)
    with serving(any_server.url, [acker.namespace]):
        wait_until(lambda: expired(acker))
    assert seen.fields("few_threads")["workers"] == 1


def test_the_heartbeat_stops_when_a_call_hangs(
    make_any_acker: MakeAcker,
    any_server: EmbeddedRedis,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(rotator_service, "_BEAT_EVERY", 0.005)
    monkeypatch.setattr(
        rotator_service, "HANGS_AFTER", 1e6
    )  # a slow machine must not count as hanging
    acker, file = make_any_acker(tick_ms=20), tmp_path / "beat"
    assert "is missing" in str(heartbeat.check(file))
    with (
        proxied(any_server.url) as proxy,
        serving(proxy.url, [acker.namespace], heartbeat_file=file),
    ):
        wait_until(file.exists)
        assert heartbeat.check(file) is None
        proxy.stall = True
        wait_until(lambda: proxy.held, "a call that hangs")
        monkeypatch.setattr(rotator_service, "HANGS_AFTER", 0.1)
        wait_until(lambda: seen.all("no_heartbeat"))
        last = file.stat().st_mtime
        assert "hangs" in str(heartbeat.check(file, stale_after=0))
        assert file.stat().st_mtime == last
        proxy.stall = False
        wait_until(lambda: file.stat().st_mtime > last)


def test_signal_stops_the_service_at_any_moment(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """The handler sets the service's event while the thread does anything."""
    acker = make_any_acker(tick_ms=20)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        for _ in range(20):
            stop = threading.Event()
            signal.signal(signal.SIGUSR1, lambda number, frame, stop=stop: stop.set())
            timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            client = connect(any_server.url, LIMIT)
            assert serve(client, [acker.namespace], stop=stop) == 0
            client.close()
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_hanging_node_delays_no_other_node(seen: Seen) -> None:
    """Its calls never return here; the shards of the other two nodes continue."""
    binary = find_server()
    if binary is None:
        missing("redis-server")
    with Cluster(binary) as cluster:
        acker = Acker(cluster.client(), spread(cluster, 16))
        acker.create(AckerConfig(shards=16, tick_ms=1))
        stuck = cluster.nodes[1]
        shards = [ShardKeys(acker.namespace, shard) for shard in range(16)]
        others = {keys.shard for keys in shards if cluster.owner(slot_of(keys)) is not stuck}
        url = f"redis+cluster://127.0.0.1:{cluster.nodes[0].server.port}"
        with serving(url, [acker.namespace]):
            wait_until(lambda: {e.fields["shard"] for e in seen.all("tick")} == set(range(16)))
            os.kill(stuck.server.pid or 0, signal.SIGSTOP)
            try:
                first = len(seen.all("tick"))
                # More rounds than it could block workers.
                for _ in range(8):
                    last = len(seen.all("tick"))
                    wait_until(
                        lambda last=last: (
                            others == {e.fields["shard"] for e in seen.all("tick")[last:]} & others
                        )
                    )
                assert len(seen.all("tick")) - first >= 8 * len(others)
            finally:
                os.kill(stuck.server.pid or 0, signal.SIGCONT)
        acker.close()
    assert not seen.all("cannot_rotate")
