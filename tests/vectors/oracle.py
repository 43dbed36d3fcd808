"""What the reference says, in the words of the wire.

Nothing here comes from Redis: a vector is a second statement of what the scripts do.
"""

from acker_redis import commands
from acker_redis.batch import Columns
from acker_redis.commands import ShardApplied
from acker_redis.config import AckerConfig
from acker_redis.outcomes import Outcome
from acker_redis.reference import Record, Reference
from tests.support import rows_of
from tests.vectors.operations import Json, fence_of


class Oracle:
    """One shard: the reference, and what a stream and a ring of buckets add to it."""

    def __init__(self, config: AckerConfig) -> None:
        self.reference = Reference(config, now_ms=1_700_000_000_000)
        self._rotations = 0
        self._tasks: set[str] = set()
        self._seen: dict[str, int] = {}
        self._entries: dict[str, int] = {}

    def apply(self, part: Columns, fields: Json) -> Json:
        """Reply of apply; raises what the reference raises."""
        applied = self.reference.apply(rows_of(part), part.task, fence_of(fields))
        if applied.highest is not None:
            return [0, str(applied.highest)]
        self._tasks |= {part.task} - {""}
        return [
            1,
            applied.tracked,
            applied.acked,
            applied.failed,
            len(applied.rejected),
            applied.pending,
            applied.high_water,
            {"hex": _numbers(part, applied)},
        ]

    def rotate(self, force: bool) -> Json:
        """Reply of rotate."""
        rotated = self.reference.rotate(force)
        self._rotations += rotated
        # How long a tick is still away is for a clock to say.
        due = self.reference.config.tick_ms if rotated else None
        return [int(rotated), due, len(self.reference.expiring)]

    def expire(self) -> Json:
        """Reply of expire."""
        before = self.reference.counters.copy()
        left = self.reference.expire()
        new = self.reference.counters - before
        return [new["expired"], new["orphaned"], left]

    def take(self, task: str) -> tuple[int, int]:
        """Entries and verdicts that were taken."""
        self._seen.pop(task, None)
        return self._entries.pop(task, 0), len(self.reference.take(task))

    def told(self) -> list[Json]:
        """Verdicts since the last time; a call writes an entry per task, verdict and reason."""
        found = []
        for task, outcomes in sorted(self.reference.outcomes.items()):
            new = outcomes[self._seen.get(task, 0) :]
            self._seen[task] = len(outcomes)
            kinds = {(o.verdict, o.reason) for o in new}
            self._entries[task] = self._entries.get(task, 0) + len(kinds)
            found += [_outcome(task, o) for o in new]
        return found

    def checksums(self, part: Columns) -> Json:
        """Checksums of the batch's trees that have a record, by anchor."""
        anchors = [part.anchor(row) for row in range(len(part))]
        return {
            f"{anchor:016x}": f"{bucket[anchor].checksum:016x}"
            for anchor in anchors
            for bucket in self.reference.buckets
            if anchor in bucket
        }

    def status(self) -> Json:
        """Reply of status."""
        reference = self.reference
        return [
            None,
            self._ring([len(bucket) for bucket in reference.buckets]),
            len(reference.expiring),
            self._ring([len(bucket) for bucket in reference.fences]),
            len(reference.durable),
            None,
        ]

    def state(self) -> Json:
        """What the shard holds."""
        reference = self.reference
        return {
            "pending": [_records(bucket) for bucket in reference.buckets],
            "expiring": _records(reference.expiring),
            "fences": [
                {lane: f"{seq}:{digest}" for lane, (seq, digest) in sorted(fences.items())}
                for fences in reference.fences
            ],
            "durable": {
                lane: f"{seq}:{digest}"
                for lane, (seq, digest, _) in sorted(reference.durable.items())
            },
            "counters": {name: reference.counters[name] for name in commands.COUNTERS},
            "backlog": {
                task: len(reference.outcomes.get(task, ())) for task in sorted(self._tasks)
            },
        }

    def _ring(self, newest_first: list[int]) -> list[int]:
        """By the number of the bucket: each tick makes the next number the newest."""
        n = len(newest_first)
        return [newest_first[(self._rotations - bucket) % n] for bucket in range(n)]


def _numbers(part: Columns, applied: ShardApplied) -> str:
    rejected = set(applied.rejected)
    return "".join(f"{row:04x}" for row in range(len(part)) if part.anchor(row) in rejected)


def _outcome(task: str, o: Outcome) -> Json:
    return [task, o.verdict, o.reason, f"{o.anchor:016x}", o.source_id, o.why]


def _records(bucket: dict[int, Record]) -> Json:
    return {
        f"{anchor:016x}": {
            "checksum": f"{record.checksum:016x}",
            "failed": record.why is not None,
            "task": record.task,
            "text": record.source_id if record.task else record.why or "",
        }
        for anchor, record in sorted(bucket.items())
    }
