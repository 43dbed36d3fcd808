"""Trees that Redis loses are found by ``Acker.lost``: all of them, and no other."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from acker_redis import Acker, AckerConfig, Batch, StoredVerdict, StoredVerdicts, TrackedTree
from acker_redis.embedded.binary import ServerBinary
from acker_redis.protocol.ids import new_anchor
from tests.durability.servers import EVERY_SECOND, Kept, ThreeServers
from tests.support import tick
from tests.waiting import LIMIT, wait_until

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=1_000_000, shards=2, publish=False)
KEPT, LOST, STORED = 11_500, 3_000, 500
"""Trees that survive, that are lost, and that are lost when their verdicts are stored."""
A, WITHIN = 4242, 1


class Program:
    """Tracks records, and stores verdicts before it takes them, and has no clock."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.tracked: list[TrackedTree] = []
        self.stored: list[StoredVerdict] = []
        self.done: Counter[str] = Counter()

    def track(self, source_ids: list[str]) -> list[int]:
        """Track records in batches, every third of them in blocks; return their anchors."""
        found: list[int] = []
        for first in range(0, len(source_ids), 1000):
            part = source_ids[first : first + 1000]
            if first // 1000 % 3 == 2:
                anchors = [*self.acker.track_block("t", part[0], [A] * len(part))]
            else:
                anchors = [new_anchor() for _ in part]
                batch = Batch("t")
                for anchor, name in zip(anchors, part, strict=True):
                    batch.track(anchor, name, [A])
                self.acker.apply(batch)
            at = self.now_ms()
            pairs = zip(anchors, part, strict=True)
            self.tracked += [TrackedTree(anchor, name, at) for anchor, name in pairs]
            found += anchors
        return found

    def ack(self, anchors: list[int]) -> None:
        for first in range(0, len(anchors), 1000):
            batch = Batch()
            for anchor in anchors[first : first + 1000]:
                batch.ack(anchor, A)
            self.acker.apply(batch)

    def take(self) -> None:
        outcomes = self.acker.outcomes("t")
        while entries := outcomes.read():
            for entry in entries:
                self.stored += [
                    StoredVerdict(each.anchor, entry.at_ms, each.age_ms, 1, each.reason)
                    for each in entry
                ]
            outcomes.take(entries)

    def now_ms(self) -> int:
        return self.acker.status().shards[0].now_ms

    def lost(self) -> list[TrackedTree]:
        old = self.tracked[-1].at_ms + 1000 * WITHIN
        wait_until(lambda: self.now_ms() > old, "trees that are old enough")
        return self.acker.lost("t", self.tracked, self._read, within=WITHIN)

    def _read(self, anchors: list[int]) -> StoredVerdicts:
        asked = {*anchors}
        newest = max((each.at_ms for each in self.stored), default=0)
        return StoredVerdicts(newest, [each for each in self.stored if each.anchor in asked])


def check(program: Program, keep: Callable[[], None], lose: Callable[[], None]) -> None:
    """``keep()`` marks the state that survives; ``lose()`` sets Redis back to it."""
    program.acker.create(CONFIG)
    names = [f"order-{number}" for number in range(KEPT + STORED + LOST)]
    kept = program.track(names[:KEPT])
    program.ack(kept[: KEPT // 2])
    program.take()
    keep()
    gone = program.track(names[KEPT:])
    program.ack(kept[KEPT // 2 : KEPT // 2 + 500])
    program.take()
    program.ack(gone[:STORED])
    program.take()
    assert program.lost() == []
    lose()
    assert {each.anchor for each in program.lost()} == {*gone[STORED:]}, "acked trees were stored"
    lost = [each.source_id for each in program.lost()]
    assert lost == names[KEPT + STORED :]
    program.tracked = [each for each in program.tracked if each.anchor not in {*gone[STORED:]}]
    program.ack(program.track(lost))
    tick(program.acker, 3)
    assert program.lost() == [], "verdicts wait in the stream"
    program.take()
    assert program.lost() == []
    assert {each.anchor for each in program.tracked} <= {each.anchor for each in program.stored}


def test_trees_that_a_cut_log_has_lost(binary: ServerBinary, directory: Path) -> None:
    with (
        Kept(binary, directory / "a", *EVERY_SECOND) as server,
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
    ):
        size = 0

        def keep() -> None:
            nonlocal size
            size = server.log.stat().st_size

        def lose() -> None:
            server.kill()
            with server.log.open("r+b") as log:
                log.truncate(size)
            server.start()

        check(Program(acker), keep, lose)


@pytest.mark.parametrize("binary", ["path"], indirect=True)
def test_trees_that_a_failover_has_lost(binary: ServerBinary, directory: Path) -> None:
    with (
        ThreeServers(binary, directory) as three,
        Acker.from_url(three.url, "n", retry_for=LIMIT) as acker,
    ):
        old, new, other = three.servers

        def keep() -> None:
            three.catch_up()
            three.cut_off(new)

        def lose() -> None:
            three.move_clients(new)
            three.follow(other, new)
            three.follow(old, new)

        check(Program(acker), keep, lose)
