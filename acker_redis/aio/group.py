"""The records of a completion group: what ``AsyncSource.group`` gives."""

from collections.abc import Awaitable, Callable
from typing import Any

from acker_redis.trees.group import GroupBlock
from acker_redis.trees.record import Record


class AsyncGroup:
    """Emits the records of one group, while its ``async with`` block runs."""

    def __init__(
        self, emit_record: Callable[[Record, float | None], Awaitable[None]], block: GroupBlock
    ) -> None:
        self._emit_record, self._block = emit_record, block

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._block.name

    async def emit(
        self,
        source_id: str,
        value: Any = None,
        messages: int | None = 1,
        *,
        edge: str = "",
        timeout: float | None = None,
    ) -> None:
        """Queue a record as a member of the group; arguments and errors as :meth:`Source.emit`.

        Also raises InvalidBatchError if the block has emitted this source id already, or a million
        of them, and ClosedError after the block.
        """
        self._block.add(source_id)
        try:
            record = Record(source_id, value, messages, edge=edge, _group=self._block)
            await self._emit_record(record, timeout)
        except BaseException:
            self._block.remove(source_id)
            raise
