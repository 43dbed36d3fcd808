"""A replica is promoted that lacks answered writes: those writes are lost."""

import random
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.durability.load import KINDS, TREES, Load
from tests.durability.records import Replayed
from tests.durability.servers import ThreeServers
from tests.source.conftest import Clock
from tests.source.conftest import clock as clock
from tests.support import row, track, verdicts
from tests.waiting import LIMIT, wait_until

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=1_000_000, shards=2, publish=False)
MIN_REPLICAS = ("--min-replicas-to-write", "1")
UNDER_WAY = len(KINDS) * TREES
"""Trees."""


def fail_over(three: ThreeServers, load: Load, lose: int) -> None:
    """Promote a replica that lacks the last ``lose`` rounds; the others follow it."""
    old = three.master
    new, other = (server for server in three.servers if server is not old)
    three.cut_off(new)
    load.go_on(lose)
    three.move_clients(new)
    load.go_on(2)
    three.follow(other, new)
    three.follow(old, new)


def test_promoted_replica_without_the_last_writes_never_acks_falsely(
    binary: ServerBinary, directory: Path
) -> None:
    """Two failovers: in the end the first master leads again, with the data of the second."""
    with (
        ThreeServers(binary, directory) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(CONFIG)
        three.catch_up()
        with Load(three.url, acker) as load:
            for _ in range(2):
                load.go_on(3)
                fail_over(three, load, lose=3)
        counted = load.finish()
    books, lost = load.books, load.books.lost()
    print(f"promoted: {dict(lost)}, {counted}")
    assert not books.false_acks
    assert 0 < lost["never reported"] < lost["tracked"]
    assert lost["done, not acked"] > 0
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0


def test_master_without_replicas_refuses_writes_with_min_replicas(
    binary: ServerBinary, directory: Path
) -> None:
    """Clients wait until they reach the new master, so only few trees are lost."""
    with (
        ThreeServers(binary, directory, *MIN_REPLICAS) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
        Acker.from_url(three.url, "n", retry_for=0) as hasty,
    ):
        acker.create(CONFIG)
        three.catch_up()
        new, other = three.servers[1:]
        with Load(three.url, acker) as load:
            load.go_on(3)
            # Both replicas lose their master, as in a network partition.
            three.cut_off(other)
            before = len(load.books.tracked)
            # Calls that were answered up to here are not lost.
            three.catch_up(new)
            three.cut_off(new)
            wait_until(lambda: refuses(hasty), "a master that refuses writes")
            answered = len(load.books.tracked) - before
            other.ask("REPLICAOF", "127.0.0.1", new.port)
            three.servers[0].ask("REPLICAOF", "127.0.0.1", new.port)
            three.move_clients(new)
            load.go_on(3)
        counted = load.finish()
    books, lost = load.books, load.books.lost()
    print(f"min-replicas-to-write 1: {dict(lost)}, {counted}")
    assert not books.false_acks
    # The calls answered before the master refused writes, and one round of each thread.
    assert lost["never reported"] <= answered + UNDER_WAY
    assert len(books.tracked) > before + answered + UNDER_WAY
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0


@pytest.mark.parametrize("least", [1, 2])
def test_master_that_keeps_a_replica_is_stopped_only_if_all_are_required(
    binary: ServerBinary, directory: Path, least: int
) -> None:
    """Of two replicas one is promoted beyond a split, the other stays with the old master."""
    with (
        ThreeServers(binary, directory, "--min-replicas-to-write", str(least)) as three,
        Acker.from_url(three.url, "n", retry_for=0) as acker,
    ):
        acker.create(CONFIG)
        three.catch_up()
        old, new, _ = three.servers
        three.cut_off(new)
        if least == 2:
            wait_until(lambda: refuses(acker), "a master that refuses writes")
            return
        applied = track(acker, 2, 10)
        assert (applied.tracked, old.ask("HGET", "acker:{n:0}:meta", "tracked")) == (1, b"1")
        assert new.ask("HGET", "acker:{n:0}:meta", "tracked") == b"0", "lost with the old master"


def refuses(acker: Acker) -> bool:
    try:
        track(acker, 2 * random.randrange(1, 10**9), 10)
    except RedisUnavailableError as error:
        return "NOREPLICAS" in str(error)
    return False


def test_source_replays_each_record_until_it_is_acked(
    binary: ServerBinary, directory: Path, clock: Clock
) -> None:
    with (
        ThreeServers(binary, directory) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(CONFIG)
        three.catch_up()
        source = Replayed(three.url, "n", clock, seed=11)
        old, new, other = three.servers

        def again() -> None:
            three.move_clients(new)
            three.follow(other, new)

        source.run(90, {30: lambda: three.cut_off(new), 60: again})
        source.close()
    assert any(attempt > 1 for attempt in source.attempts.values())


@pytest.mark.parametrize("binary", ["path"], indirect=True)
def test_split_row_causes_a_false_ack_after_lost_writes(
    binary: ServerBinary, directory: Path
) -> None:
    """Rows must be complete: here the old master has the child's id, the new one the ack."""
    with (
        ThreeServers(binary, directory) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(AckerConfig(tick_ms=3_600_000))
        track(acker, 7, 10)
        track(acker, 8, 10)
        new = three.servers[1]
        three.catch_up()
        three.cut_off(new)
        row(acker, 7, 20)
        three.move_clients(new)
        wait_until(lambda: acker.status().pending == 2, "the new master")
        row(acker, 7, 10)
        row(acker, 8, 10 ^ 20)
        assert [(verdict[0], verdict[2]) for verdict in verdicts(acker)] == [("ack", 7)]
