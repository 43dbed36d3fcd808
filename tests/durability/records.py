"""A source that replays its records until all are acked, and bolts that record their work."""

import random
from collections.abc import Callable
from contextlib import suppress

from acker_redis import Acker, Backoff, Source
from acker_redis.errors import AckerError
from acker_redis.trees.record import Record
from tests.source.bolts import Bolts
from tests.source.conftest import Clock
from tests.waiting import LIMIT

LIFE = 3 * 3600.0
"""Maximum lifetime of a tree in seconds, by the configuration of these tests."""
Mishap = Callable[[], object]


class Replayed:
    """Emits records, processes some of them, and continues while Redis fails."""

    def __init__(self, url: str, namespace: str, clock: Clock, seed: int) -> None:
        self.done: set[tuple[str, int]] = set()
        """Records and attempts that are fully processed, recorded before their acks are sent."""
        self.acked: list[str] = []
        self.attempts: dict[str, int] = {}
        self._clock = clock
        self._chance = random.Random(seed)
        self._bolts = Bolts(Acker.from_url(url, namespace, retry_for=LIMIT))
        self._source = Source(
            Acker.from_url(url, namespace, retry_for=0),
            "t",
            self._bolts.send,
            attempts=1000,
            backoff=Backoff(0, 0),
            on_ack=self._on_ack,
            on_fail=lambda *_: None,
        )

    def run(self, records: int, mishaps: dict[int, Mishap]) -> None:
        """Emit records, with a mishap after some of them; then wait until all are acked."""
        for number in range(records):
            self._source.emit(f"record-{number}", messages=self._chance.choice((1, 2, None)))
            self.step(0.6)
            if number in mishaps:
                mishaps[number]()
        for _ in range(20):
            self.step(1)
        self.attempts_before_any_timeout = dict(self.attempts)
        for _ in range(100):
            if not self._source.pending:
                break
            self._clock.advance(1.5 * LIFE / 4)
            self.step(1)
        assert not self._source.pending
        assert sorted(set(self.acked)) == sorted(f"record-{number}" for number in range(records))

    def step(self, share: float) -> None:
        """Run a step of the source, and let the bolts process about this share of the messages."""
        with suppress(AckerError):
            self._source.step()
        kept = [each for each in self._bolts.sent if self._chance.random() >= share]
        self._bolts.sent = [each for each in self._bolts.sent if each not in kept]
        for record, attempt, _ in self._bolts.sent:
            self.done.add((record.source_id, attempt))
            self.attempts[record.source_id] = attempt
        self._bolts.ack()
        self._bolts.sent = kept

    def close(self) -> None:
        self._source.acker.close()
        self._bolts.acker.close()

    def _on_ack(self, record: Record) -> None:
        assert (record.source_id, record.attempt) in self.done
        self.acked.append(record.source_id)
