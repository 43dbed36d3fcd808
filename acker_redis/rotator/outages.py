"""What to say of jobs that fail: one event when it begins and one when it is over. No I/O."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from acker_redis.logs import Event


@dataclass
class _Outage:
    since: float
    jobs: set[Hashable] = field(default_factory=set)


class Outages:
    """Groups failures by what they have in common, a server or a namespace.

    >>> outages = Outages()
    >>> str(outages.failed("shard 0", "10.0.0.1:6379", 5.0, error="no answer"))
    'cannot_rotate where=10.0.0.1:6379 error="no answer"'
    >>> outages.failed("shard 1", "10.0.0.1:6379", 5.1, error="no answer")  # nothing new
    >>> outages.well("shard 0", 8.0)  # one of them is well again
    >>> str(outages.well("shard 1", 9.0))
    'rotates_again where=10.0.0.1:6379 after_s=4.0'
    """

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._of: dict[Hashable, str] = {}

    def failed(self, job: Hashable, where: str, now: float, **fields: object) -> Event | None:
        """A job has failed; what is to be said, if it is the first of its group."""
        if self._of.get(job, where) != where:
            self._end(job)  # for another reason than before
        self._of[job] = where
        known = self._outages.get(where)
        if known:
            known.jobs.add(job)
            return None
        self._outages[where] = _Outage(now, {job})
        return Event("cannot_rotate", where=where, **fields)

    def well(self, job: Hashable, now: float) -> Event | None:
        """A job did well, or is no more; what is to be said, if it was the last of its group."""
        over = self._end(job)
        if over is None:
            return None
        where, since = over
        return Event("rotates_again", where=where, after_s=round(now - since, 1))

    def _end(self, job: Hashable) -> tuple[str, float] | None:
        where = self._of.pop(job, None)
        if where is None:
            return None
        outage = self._outages[where]
        outage.jobs.discard(job)
        if outage.jobs:
            return None
        del self._outages[where]
        return where, outage.since
