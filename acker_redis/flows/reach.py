"""Which shards of a namespace answer. No I/O: see ``flows/steps.py``.

Shards are independent: each has its own trees, fences and streams, and in a cluster its own master.
So the shards that answer are served while others do not.

1. A shard whose call got no answer, or was refused, is *away*: it is left out of all calls. So are,
   after a call without an answer, the other shards on its server, until a probe was answered. A
   server that hangs costs its caller one timeout in all.
2. A probe in the background asks the shards of a server that are away, with pauses. So a server
   that hangs delays only its probe.
3. When its probe was answered and its pause is over, a shard is called again. Its pause grows with
   each failure in a row, also if probes are answered: a master that was demoted answers reads and
   refuses writes.

If all shards are away, all are called: then there is no other work to protect, and the caller gets
the error. That is always so with one server.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from acker_redis.errors import AckerError, RedisUnavailableError
from acker_redis.flows.steps import AskEach, Begin, Begun, Flow, Places
from acker_redis.protocol.keys import ShardKeys

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""First and longest pause before a shard is called again, in seconds; it doubles."""
PROBE_EVERY = 1.0
"""Longest pause between two probes of a server, in seconds."""

PROBE_LASTS = 60.0
"""Seconds after which a probe without a result is replaced by another."""


@dataclass(slots=True)
class _Away:
    """A shard that is away."""

    error: AckerError
    failures: int = 0
    until: float = 0.0
    """When its pause is over."""
    answers: bool = False
    """Whether a probe was answered since its last failure."""


@dataclass(slots=True)
class _Probe:
    """The probe of a server."""

    running: Begun | None = None
    began: float = 0.0
    times: int = 0
    at: float = 0.0
    """When the next one is due."""


class Reach:
    """The shards of one namespace that answer, as the calls of one caller have shown.

    All times are in seconds of any one clock.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._away: dict[int, _Away] = {}
        self._back: dict[int, float] = {}
        """When a shard that was away was served again."""
        self._places: list[str | None] = []
        """The server of each shard; empty: to be found again."""
        self._probes: dict[str | None, _Probe] = {}

    @property
    def away(self) -> dict[int, AckerError]:
        """The shards that are away, with their last errors."""
        return {shard: each.error for shard, each in self._away.items()}

    def ready(self, shards: int, now: float) -> Flow[list[int]]:
        """Return the shards to call, of ``shards`` in all; it never waits for a shard."""
        for shard in [shard for shard in self._away if shard >= shards]:
            del self._away[shard]  # a reshard has removed it
        yield from self._find_places(shards)
        if len(self._away) < shards:
            yield from self._look(now)
            yield from self._find_places(shards)
        found = [shard for shard in range(shards) if self._is_ready(shard, now)]
        return found or list(range(shards))

    def since(self, shard: int) -> float:
        """Return when the shard was served again after its last failure; 0 if it never failed.

        Infinity while it is away.
        """
        return float("inf") if shard in self._away else self._back.get(shard, 0.0)

    def failed(self, shard: int, error: AckerError, now: float) -> list[int]:
        """Note that a call of a shard failed; return all shards that are left out for that."""
        away = self._away.setdefault(shard, _Away(error))
        away.error, away.answers, away.failures = error, False, away.failures + 1
        longest = min(FIRST_PAUSE * 2.0 ** min(away.failures - 1, 30), LONGEST_PAUSE)
        away.until = now + longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        if not isinstance(error, RedisUnavailableError) or shard >= len(self._places):
            return [shard]
        place = self._places[shard]
        others = [s for s, where in enumerate(self._places) if where == place and s != shard]
        for other in others:
            self._away.setdefault(other, _Away(error)).answers = False
        return [shard, *others]

    def served(self, shards: Iterable[int], now: float) -> list[int]:
        """Note shards of which all calls were answered; return those that were away."""
        back = [shard for shard in shards if self._away.pop(shard, None)]
        self._back |= dict.fromkeys(back, now)
        return back

    def _find_places(self, shards: int) -> Flow[None]:
        if len(self._places) != shards:
            keys = [ShardKeys(self._namespace, shard).meta for shard in range(shards)]
            self._places = (yield Places(tuple(keys))) if shards > 1 else [None]

    def _look(self, now: float) -> Flow[None]:
        """Take the results of probes, and begin those that are due."""
        asked: dict[str | None, list[int]] = {}
        for shard, away in self._away.items():
            if not away.answers:
                asked.setdefault(self._places[shard], []).append(shard)
        for place, shards in asked.items():
            probe = self._probes.setdefault(place, _Probe())
            if probe.running is not None:
                if probe.running.done():
                    self._note_answers(probe, now)
                elif now < probe.began + PROBE_LASTS:
                    continue
                else:
                    # Nothing runs it any more: the process was forked, or its event loop closed.
                    probe.running, probe.at = None, now
            waiting = [shard for shard in shards if not self._away[shard].answers]
            if not waiting:
                del self._probes[place]
            elif now >= probe.at:
                probe.began, probe.running = now, (yield Begin(self._ask(waiting)))

    def _note_answers(self, probe: _Probe, now: float) -> None:
        assert probe.running is not None  # noqa: S101 - the caller has checked it
        found = () if probe.running.cancelled() else probe.running.result()
        for shard in self._away.keys() & (found if isinstance(found, list) else ()):
            self._away[shard].answers = True
        probe.running, probe.times = None, probe.times + 1
        probe.at = now + min(FIRST_PAUSE * 2.0 ** min(probe.times, 30), PROBE_EVERY)
        self._places = []  # the slots of a cluster may have moved

    def _is_ready(self, shard: int, now: float) -> bool:
        away = self._away.get(shard)
        return away is None or (away.answers and now >= away.until)

    def _ask(self, shards: list[int]) -> Flow[list[int]]:
        """Return which of the shards answer."""
        asked = [("HGET", ShardKeys(self._namespace, shard).meta, "shards") for shard in shards]
        replies = yield AskEach(tuple(asked))
        pairs = zip(shards, replies, strict=True)
        return [shard for shard, reply in pairs if not isinstance(reply, AckerError)]
