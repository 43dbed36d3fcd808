"""Threads that track and ack trees while Redis fails, and sets that record the truth.

A finished tree is recorded before its last row is sent. So an ack of a tree without that record is
false, regardless of rows that were lost, repeated or rolled back.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from acker_redis.batching.batch import Batch
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.outcome import Entry
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.producer.rig import InThread
from tests.support import total
from tests.waiting import LIMIT, wait_until

Kind = Literal["loose", "blocks", "durable"]
KINDS: tuple[Kind, ...] = ("loose", "blocks", "durable")
TREES = 20
"""Trees of a round: of ten trees, five are processed, four stay open, and one fails."""


@dataclass
class Books:
    """The truth about each tree, and the verdicts of its source. Any thread may write."""

    tracked: set[int] = field(default_factory=set)
    """Trees whose track was confirmed to the client."""
    done: set[int] = field(default_factory=set)
    """Trees whose messages are all processed; the acks may not be applied yet."""
    failed: set[int] = field(default_factory=set)
    verdicts: dict[int, list[str]] = field(default_factory=dict)
    """The reasons of the verdicts of each tree."""
    entries: set[Entry] = field(default_factory=set)
    """Entries that were read: an entry may be read again until it is taken."""

    def read(self, acker: Acker) -> None:
        """Read and take the waiting verdicts, unless Redis is unavailable."""
        with contextlib.suppress(RedisUnavailableError):
            outcomes = acker.outcomes("t")
            while entries := outcomes.read():
                for entry in set(entries) - self.entries:
                    self.entries.add(entry)
                    for outcome in entry:
                        self.verdicts.setdefault(outcome.anchor, []).append(outcome.reason)
                outcomes.take(entries)

    @property
    def false_acks(self) -> set[int]:
        """Return the trees that were acked, but are not done or have failed."""
        acked = {anchor for anchor, reasons in self.verdicts.items() if "completed" in reasons}
        return acked - self.done | acked & self.failed

    def wrong(self) -> Counter[str]:
        """Return the errors at the end of a test in which nothing may be lost."""
        found = Counter({"acked falsely": len(self.false_acks)})
        for anchor in self.tracked:
            reasons = self.verdicts.get(anchor, [])
            right = (
                "failed"
                if anchor in self.failed
                else "completed"
                if anchor in self.done
                else "expired"
            )
            found["never reported"] += not reasons
            found["reported twice"] += len(reasons) > 1
            found["wrong verdict"] += bool(reasons) and reasons[0] != right
        return +found

    def lost(self) -> Counter[str]:
        """Return the losses at the end of a test in which writes may be lost."""
        return Counter(
            {
                "tracked": len(self.tracked),
                "never reported": len(self.tracked - self.verdicts.keys()),
                "done, not acked": sum(
                    "completed" not in self.verdicts.get(anchor, ())
                    for anchor in self.done & self.tracked
                ),
            }
        )


class Load:
    """Threads that track and ack, and one that reads verdicts; they run within ``with``."""

    def __init__(self, url: str, direct: Acker, kinds: tuple[Kind, ...] = KINDS) -> None:
        self.books = Books()
        self.direct = direct
        self.rounds: Counter[Kind] = Counter()
        self._url, self._kinds = url, kinds
        self._enough = threading.Event()
        self._threads: list[InThread] = []

    def go_on(self, rounds: int = 5) -> None:
        """Wait until each thread has done this number of further rounds."""
        before = self.rounds.copy()

        def done() -> bool:
            done = all(self.rounds[kind] >= before[kind] + rounds for kind in self._kinds)
            return done or any(thread.ended for thread in self._threads)

        wait_until(done, f"{rounds} more rounds")

    def finish(self, expire: bool = True) -> dict[str, int]:
        """Let the remaining trees expire, and read their verdicts; return the checked counters."""
        if expire:
            for _ in range(self.direct.config.buckets):
                Rotator([self.direct]).step(force=True)
        self.books.read(self.direct)
        return total(self.direct)

    def _work(self, kind: Kind) -> None:
        with Acker.from_url(self._url, self.direct.namespace, retry_for=LIMIT) as acker:
            sender = Sender(acker, kind)
            while not self._enough.is_set():
                one_round(self.books, sender)
                self.rounds[kind] += 1

    def _read(self) -> None:
        with Acker.from_url(self._url, self.direct.namespace, retry_for=LIMIT) as acker:
            while not self._enough.wait(0.02):
                self.books.read(acker)

    def __enter__(self) -> "Load":
        work: list[Callable[[], None]] = [self._read]
        work += [lambda kind=kind: self._work(kind) for kind in self._kinds]  # type: ignore[misc]
        self._threads = [InThread(each) for each in work]
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()
        if error[0] is None:
            for thread in self._threads:
                thread.join()


class Sender:
    """Sends batches of one kind, and retries each until it is answered."""

    def __init__(self, acker: Acker, kind: Kind) -> None:
        self.kind = kind
        self._acker = acker
        self._lane = f"@{new_anchor():x}"
        self._seq = 0
        self._shards = acker.config.shards

    def send(self, batch: Batch) -> None:
        """Apply a batch, in the client's lane or in a durable lane."""
        if self.kind != "durable":
            self._acker.apply(batch)
            return
        for part in batch.parts(self._shards):
            self._seq += 1
            self._acker.apply_part(part, Fence(self._lane, self._seq, part.rows.digest))


def one_round(books: Books, sender: Sender) -> None:
    """Track some trees, and process their messages in two batches; some stay open, some fail."""
    track, first, second = Batch("t"), Batch(), Batch()
    ones, children, others = ([new_tuple_id() for _ in range(TREES)] for _ in range(3))
    anchors = range(0)
    if sender.kind == "blocks":
        label = f"block {new_anchor():x}"
        deltas = [one ^ other for one, other in zip(ones, others, strict=True)]
        anchors = track.track_block(label, deltas, new_anchor() >> 12)
        sender.send(track)  # rows of a block that arrive before its track are dropped
    else:
        anchors = [new_anchor() for _ in range(TREES)]  # type: ignore[assignment]
        for anchor, one, other in zip(anchors, ones, others, strict=True):
            track.track(anchor, f"s{anchor}", [one, other])
        sender.send(track)
    books.tracked.update(anchors)
    for number, anchor in enumerate(anchors):
        first.ack(anchor, ones[number], [children[number]])
        second.ack(anchor, children[number])
        if number % 10 == 9:
            books.failed.add(anchor)
            second.fail(anchor, "no", others[number])
        elif number % 2 == 0:
            books.done.add(anchor)
            second.ack(anchor, others[number])
    for batch in (first, second):
        sender.send(batch)
        time.sleep(0.002)
