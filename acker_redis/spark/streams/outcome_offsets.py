"""Offsets of a streaming read of verdicts, without the I/O.

The position in a source's streams does not only grow: after a failover of Redis, new entries may
have smaller ids than entries that were read before, and a range of ids would skip them. An offset
therefore lists the ids of the entries in its micro-batch, for each shard::

    {"namespace": "orders", "source": "shop", "ids": {"0": "1727712345678-0 1727712345678-1"}}

An entry that is in no offset is new, regardless of its id.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acker_redis.errors import ConfigError

_IDS = re.compile(r"[0-9]{1,20}-[0-9]{1,20}( [0-9]{1,20}-[0-9]{1,20})*")

Ids = tuple[str, ...]
"""Ids of the entries of one shard, oldest first."""


@dataclass(frozen=True)
class VerdictOffset:
    """The offset of a micro-batch: the ids of its entries."""

    namespace: str
    source: str
    ids: Mapping[int, Ids] = field(default_factory=dict)
    """Ids per shard; a shard without entries is left out."""

    def to_dict(self) -> dict[str, Any]:
        """Return the form that Spark keeps in the checkpoint; equal offsets give equal JSON."""
        ids = {str(shard): " ".join(self.ids[shard]) for shard in sorted(self.ids)}
        return {"namespace": self.namespace, "source": self.source, "ids": ids}

    def parse(self, offset: Mapping[str, Any]) -> "VerdictOffset":
        """Return an offset from a checkpoint of the same source.

        Raises ConfigError for an offset of another source, whose entries may have the same ids.
        """
        ids = offset.get("ids")
        if not isinstance(ids, dict) or not all(
            shard.isdecimal() and isinstance(text, str) and _IDS.fullmatch(text)
            for shard, text in ids.items()
        ):
            raise ConfigError(
                "the checkpoint has an offset that acker-outcomes did not write: "
                "give the query its own checkpointLocation"
            )
        found = (str(offset.get("namespace")), str(offset.get("source")))
        if found != (self.namespace, self.source):
            raise ConfigError(
                f"the checkpoint belongs to source {found[1]} of namespace {found[0]}, not to "
                f"source {self.source} of namespace {self.namespace}: give this query its own "
                "checkpointLocation, or restore the options namespace and source"
            )
        parsed = {int(shard): tuple(text.split(" ")) for shard, text in ids.items()}
        return VerdictOffset(self.namespace, self.source, parsed)

    def without(self, start: "VerdictOffset") -> dict[int, Ids]:
        """Return the entries per shard that are not in ``start``, without empty shards."""
        left: dict[int, Ids] = {}
        for shard, ids in self.ids.items():
            known = set(start.ids.get(shard, ()))
            if kept := tuple(id_ for id_ in ids if id_ not in known):
                left[shard] = kept
        return left
