"""A load of sources, bolts and a rotator during a reshard, with records of all they did."""

import queue
import random
import threading
from types import TracebackType
from typing import Any, Self

from acker_redis import Acker, Backoff, Bolt, MessageId, Producer, Rotator, Source
from acker_redis.aio import AsyncAcker
from acker_redis.trees.record import Record
from tests.source.twin import Loop, Twin
from tests.waiting import LIMIT, wait_until


class Load:
    """Emits records until it is stopped; every tenth message is lost or failed.

    Each message causes another one, which another bolt processes. ``make`` returns a separate
    Acker, or with ``aio=True`` an AsyncAcker.
    """

    def __init__(self, make: Any, kind: str, seed: int) -> None:
        self.emitted = 0
        self.acked: list[str] = []
        self.false: list[str] = []
        """Records that were acked before all their messages were processed."""
        self.given_up: list[str] = []
        self.reasons: set[str] = set()
        self._rng = random.Random(seed)
        self._wire: queue.SimpleQueue[MessageId | None] = queue.SimpleQueue()
        self._attempts: dict[str, MessageId] = {}
        """Messages of the last attempt of each record."""
        self._caused: dict[MessageId, MessageId] = {}
        self._processed: set[MessageId] = set()
        self._enough = threading.Event()
        self._loop = Loop() if kind == "asyncio" else None
        settings: dict[str, Any] = {
            "on_ack": self._on_ack,
            "on_fail": lambda record, reason, why: self.reasons.add(reason),
            "dead_letter": lambda record, reason, why: self.given_up.append(record.source_id),
            "max_pending": 40,
            "attempts": 1000,
            "backoff": Backoff(0.005, 0.02),
            "timeout": 10 * LIMIT,
        }
        self.source: Any
        if self._loop:
            self._async_acker: AsyncAcker = make(aio=True)
            self.source = Twin(self._loop, self._async_acker, "t", self._send, **settings)
        else:
            self.source = Source(make(), "t", self._send, **settings)
        self.producer = Producer(make(), linger=0.001)
        self._bolt = Bolt(self.producer)
        self._rotator = Rotator([make()])
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(2)]
        self._threads.append(threading.Thread(target=self._emit, daemon=True))

    def wait_for(self, more: int) -> None:
        """Wait until ``more`` more records are acked."""
        goal = len(self.acked) + more
        wait_until(lambda: len(self.acked) >= goal, f"{more} more records")

    def _emit(self) -> None:
        while not self._enough.is_set():
            self.source.emit(str(self.emitted))
            self.emitted += 1

    def _send(self, record: Record, ids: tuple[MessageId, ...]) -> None:
        self._attempts[record.source_id] = ids[0]
        self._wire.put(ids[0])

    def _work(self) -> None:
        while (message := self._wire.get()) is not None:
            fate = self._rng.random()
            if fate < 0.05:
                continue  # it expires
            with self._bolt.process(message) as handle:
                if fate < 0.1:
                    handle.fail("no")
                elif message in list(self._caused.values()):
                    self._processed.add(message)
                else:
                    caused = self._caused[message] = handle.emit()
                    self._processed.add(message)
            if fate >= 0.1 and message in self._caused:
                self._wire.put(caused)

    def _on_ack(self, record: Record) -> None:
        message = self._attempts[record.source_id]
        if not {message, self._caused.get(message)} <= self._processed:
            self.false.append(record.source_id)
        self.acked.append(record.source_id)

    def __enter__(self) -> Self:
        self._rotator.start()
        self.source.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enough.set()
        self._threads[-1].join(LIMIT)
        if error is None:
            assert self.source.join(LIMIT), f"{self.source.pending} records have no verdict"
        self.source.stop()
        for _ in self._threads[:-1]:
            self._wire.put(None)
        for thread in self._threads[:-1]:
            thread.join(LIMIT)
        self._rotator.stop()
        self.producer.close()
        if self._loop:
            self._loop.call(self._async_acker.close())
            self._loop.close()
        if error is None:
            self.check()

    def check(self) -> None:
        """Check that every record was acked, and none before it was processed."""
        assert not self.false
        assert not self.given_up
        assert sorted(set(self.acked), key=int) == [str(n) for n in range(self.emitted)]
        # A missing verdict would be a timeout of the source itself.
        assert self.reasons == {"failed", "expired"}


def settled(acker: Acker, shards: int) -> None:
    """Check that a namespace is open with ``shards`` shards, and no keys of others are left."""
    status = acker.status()
    assert status.config.shards == len(status.shards) == shards
    assert all(shard.reshard is None for shard in status.shards)
    (config,) = {shard.config for shard in status.shards}
    assert config.shards == shards
    client = acker.connection.client
    keys = client.scan_iter(f"acker:{{{acker.namespace}:*", count=1000)
    there = {int(key.decode().split(":")[2].rstrip("}")) for key in keys}
    assert there == set(range(shards))
