"""What the servers themselves say, by INFO of each master."""

import asyncio
import hashlib
from typing import Any

from redis.exceptions import NoPermissionError

from acker_redis.operate import FAILED


class Servers:
    """The masters of one Redis; where its user may not run INFO, all is unknown."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._may_ask = True

    async def script_seconds(self) -> float | None:
        """Return the seconds that scripts took on all masters; None if it is unknown."""
        found = await self._info("commandstats")
        return sum(map(_scripts, found)) if found else None

    async def dataset(self) -> str:
        """Return a fingerprint of the data of all masters; '' if it is unknown.

        A server has a new replication id when it is promoted, and when it starts again. Its data
        may then lack the last writes, so counters may be smaller than before.
        """
        ids = [str(info.get("master_replid", "")) for info in await self._info("replication")]
        if not ids or not all(ids):
            return ""
        return hashlib.sha256(",".join(sorted(ids)).encode()).hexdigest()[:8]

    async def _info(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO of each master; nothing if one does not answer."""
        if not self._may_ask:
            return []
        masters = getattr(self._client, "get_primaries", None)
        try:
            if not masters:
                return [await self._client.info(section)]
            asked = (node.execute_command("INFO", section) for node in masters())
            return list(await asyncio.gather(*asked))
        except NoPermissionError:
            self._may_ask = False  # a retry at each scrape would be in Redis's log of ACLs
            return []
        except FAILED:  # a node is unavailable: only this is missing
            return []


def _scripts(stats: dict[str, Any]) -> float:
    spent = (stats.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("evalsha", "eval"))
    return float(sum(spent)) / 1e6
