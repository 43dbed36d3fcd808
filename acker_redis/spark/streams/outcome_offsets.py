"""Offsets of a streaming read of verdicts, without the I/O.

A task's streams have no position that grows: after a failover of Redis new entries may have
smaller ids than those that were read, and a range of ids would pass over them. An offset therefore
lists the very entries of the micro-batch that ends with it, shard by shard::

    {"namespace": "orders", "source": "shop", "ids": {"0": "1727712345678-0 1727712345678-1"}}

Entries that are in no offset are new, whatever their ids.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acker_redis.errors import ConfigError

_IDS = re.compile(r"[0-9]{1,20}-[0-9]{1,20}( [0-9]{1,20}-[0-9]{1,20})*")

Ids = tuple[str, ...]
"""Ids of entries of one shard, oldest first."""


@dataclass(frozen=True)
class VerdictOffset:
    """Entries of one micro-batch."""

    namespace: str
    source: str
    ids: Mapping[int, Ids] = field(default_factory=dict)
    """Per shard; a shard without entries is not in it."""

    def to_dict(self) -> dict[str, Any]:
        """Form in which Spark keeps it in the checkpoint: equal offsets, equal JSON."""
        ids = {str(shard): " ".join(self.ids[shard]) for shard in sorted(self.ids)}
        return {"namespace": self.namespace, "source": self.source, "ids": ids}

    def parse(self, offset: Mapping[str, Any]) -> "VerdictOffset":
        """Read an offset of the same task.

        Raises ConfigError if it is of another one, whose entries may well have the same ids.
        """
        ids = offset.get("ids")
        if not isinstance(ids, dict) or not all(
            shard.isdecimal() and isinstance(text, str) and _IDS.fullmatch(text)
            for shard, text in ids.items()
        ):
            raise ConfigError(
                "the checkpoint holds an offset that is not one of acker-outcomes: "
                "give the query a checkpointLocation of its own"
            )
        found = (str(offset.get("namespace")), str(offset.get("source")))
        if found != (self.namespace, self.source):
            raise ConfigError(
                f"the checkpoint is that of source {found[1]} of namespace {found[0]}, and not of "
                f"{self.source} of {self.namespace}: give this query a checkpointLocation of its "
                "own, or set the options namespace and source as they were"
            )
        parsed = {int(shard): tuple(text.split(" ")) for shard, text in ids.items()}
        return VerdictOffset(self.namespace, self.source, parsed)

    def without(self, start: "VerdictOffset") -> dict[int, Ids]:
        """Entries per shard that are not in ``start``; shards that have none are left out."""
        left: dict[int, Ids] = {}
        for shard, ids in self.ids.items():
            known = set(start.ids.get(shard, ()))
            if kept := tuple(id_ for id_ in ids if id_ not in known):
                left[shard] = kept
        return left
