"""Log events of failing jobs: one when an outage begins, one when it ends. No I/O."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from acker_redis.logs import Event


@dataclass
class _Outage:
    since: float
    jobs: set[Hashable] = field(default_factory=set)


class Outages:
    """Groups failures by their common cause, a server or a namespace.

    >>> outages = Outages()
    >>> str(outages.failed("shard 0", "10.0.0.1:6379", 5.0, error="no answer"))
    'cannot_rotate where=10.0.0.1:6379 error="no answer"'
    >>> outages.failed("shard 1", "10.0.0.1:6379", 5.1, error="no answer")  # same outage: no event
    >>> outages.well("shard 0", 8.0)  # the outage continues for shard 1
    >>> str(outages.well("shard 1", 9.0))
    'rotates_again where=10.0.0.1:6379 after_s=4.0'
    """

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._of: dict[Hashable, str] = {}

    def failed(self, job: Hashable, where: str, now: float, **fields: object) -> Event | None:
        """Note that a job has failed; return the event to log, if it is the first of its group."""
        if self._of.get(job, where) != where:
            self._end(job)  # it failed for another reason before
        self._of[job] = where
        known = self._outages.get(where)
        if known:
            known.jobs.add(job)
            return None
        self._outages[where] = _Outage(now, {job})
        return Event("cannot_rotate", where=where, **fields)

    def well(self, job: Hashable, now: float) -> Event | None:
        """Note that a job succeeded or ended.

        Return the event to log, if its group has no other.
        """
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
