"""Which trees a shard claims to know after it has lost some: never one that is lost.

A consumer that skips the work of ended trees asks for this (``skip_ended``).
"""

from pathlib import Path

from acker_redis.embedded.binary import ServerBinary
from acker_redis.flows.alive import ask_alive
from acker_redis.protocol.alive import MAX_SKEW_MS, Alive
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.durability.servers import EVERY_SECOND, NEITHER, Kept, ThreeServers
from tests.support import tick, track
from tests.waiting import LIMIT

CONFIG = AckerConfig(tick_ms=3_600_000, publish=False)


def ask(acker: Acker, anchor: int) -> tuple[bool, Alive]:
    found = acker.connection.drive(ask_alive(acker.flows, [anchor], float("inf")))
    return found[anchor]


def claims(acker: Acker, anchor: int, tracked_ms: int) -> bool:
    """Return whether the shard says that a tree which was tracked then has ended."""
    pending, its = ask(acker, anchor)
    age = its.now_ms - tracked_ms
    return not pending and its.remembers(age, age)


def now_ms(acker: Acker) -> int:
    return ask(acker, 1)[1].now_ms


def begun(acker: Acker) -> int:
    """Let the shard remember a tree that ends; return when it was tracked."""
    acker.create(CONFIG)
    tick(acker)
    track(acker, 1, 0)
    at = now_ms(acker)
    tick(acker)
    assert claims(acker, 1, at)
    return at


def test_promoted_replica_claims_nothing_of_what_it_lacks(
    binary: ServerBinary, directory: Path
) -> None:
    """Before its first tick, and after it; also if the first master leads again with its data."""
    with (
        ThreeServers(binary, directory) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
    ):
        known = begun(acker)
        old, new, other = three.servers
        three.catch_up()
        three.cut_off(new)
        track(acker, 2, 5)
        lost = now_ms(acker)
        tick(acker)
        assert ask(acker, 2)[0]
        three.move_clients(new)
        three.follow(other, new)
        three.follow(old, new)
        assert not ask(acker, 2)[0], "the tree is lost"
        assert claims(acker, 1, known), "the memory of the replica is whole up to its last tick"
        assert not claims(acker, 2, lost)
        # The first master, which has the same run id as before, but not the same data:
        three.catch_up()
        three.cut_off(old)
        three.move_clients(old)
        assert not claims(acker, 2, lost)
        tick(acker)
        assert not claims(acker, 2, lost)
        assert not claims(acker, 1, known)
        _, its = ask(acker, 2)
        assert its.since_ms == its.until_ms + MAX_SKEW_MS


def test_cut_log_and_old_snapshot_claim_no_lost_tree(binary: ServerBinary, directory: Path) -> None:
    for settings in (EVERY_SECOND, NEITHER):
        place = directory / settings[-1] if settings else directory / "rdb"
        with Kept(binary, place, *settings) as server:
            with Acker.from_url(server.url, "n", retry_for=LIMIT) as acker:
                known = begun(acker)
                server.ask("SAVE")
                size = server.log.stat().st_size if settings else 0
                track(acker, 2, 5)
                lost = now_ms(acker)
                tick(acker)
                assert ask(acker, 2)[0]
            server.kill()
            if settings:
                with server.log.open("r+b") as log:
                    log.truncate(size)
            server.start()
            with Acker.from_url(server.url, "n", retry_for=LIMIT) as acker:
                assert not ask(acker, 2)[0], "the tree is lost"
                assert claims(acker, 1, known)
                assert not claims(acker, 2, lost)
                tick(acker)
                assert not claims(acker, 2, lost)
                assert not claims(acker, 1, known)
