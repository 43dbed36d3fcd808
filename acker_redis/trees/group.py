"""Completion groups: a set of records, and one result when each of them has its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass

from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.protocol.keys import check_name

MAX_MEMBERS = 1_000_000
"""Maximum number of records of a group: the source and Redis keep the id of each."""
MAX_NAMED = 1000
"""Failures that a result names at most; ``acker-redis groups`` prints all of them."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of a completed group, as ``on_group`` receives it.

    >>> result = GroupResult("import", "orders:shop:import:1f", 3, 2, 1, {"order-3": "failed: no"})
    >>> result.all_acked
    False
    """

    name: str
    """The name of the group."""
    key: str
    """Idempotency key: the same in each call for the same end of the ``with`` block."""
    records: int
    """Number of source ids in the group; ``acked + failed``."""
    acked: int
    """Number of records whose last verdict is an ack."""
    failed: int
    """Number of records whose last verdict is a nack without a replay."""
    failures: Mapping[str, str]
    """Source id -> reason and why of the failed records, at most 1000 of them."""

    @property
    def all_acked(self) -> bool:
        """Whether no record failed."""
        return not self.failed


class GroupBlock:
    """The ``with`` block of a group in this process: which records it has emitted."""

    def __init__(self, name: str) -> None:
        self.name = check_name("group", name)
        self.seen: set[str] = set()
        """Source ids that the block has emitted."""
        self.waiting: set[str] = set()
        """Those of them that Redis does not show as open members yet."""
        self.ended = False
        """Whether the block has ended: then nothing may be emitted."""
        self.sealed = False
        """Whether Redis shows the group as sealed."""
        self.reported = False
        """Whether the group was reported before the block, and has no new record yet."""
        self.lost = False
        """Whether Redis did not know the group when it was to be sealed."""

    def check_sealed(self) -> bool:
        """Return whether the group is sealed; raise ClosedError if Redis has lost it."""
        if self.lost:
            raise ClosedError(
                f"group {self.name} was forgotten, or lost in a failover, while it was open: it is "
                "not sealed; open it again, and emit its records again"
            )
        return self.sealed

    def add(self, source_id: str) -> None:
        """Note a record that is being emitted; raise ClosedError or InvalidBatchError."""
        if self.ended:
            raise ClosedError(f"the block of group {self.name} has ended: open the group again")
        if source_id in self.seen:
            raise InvalidBatchError(
                f"{source_id!r} is in group {self.name} already: a group counts a source id once"
            )
        if len(self.seen) >= MAX_MEMBERS:
            raise InvalidBatchError(
                f"group {self.name} has {MAX_MEMBERS} records, the maximum; use several groups"
            )
        self.waiting.add(source_id)
        self.seen.add(source_id)

    def remove(self, source_id: str) -> None:
        """Forget a record that was not emitted."""
        self.seen.discard(source_id)
        self.waiting.discard(source_id)
