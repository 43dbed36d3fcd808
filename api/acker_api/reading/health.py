"""Whether the service is of use: Redis takes trees and tells of them, and ticks are in time."""

from dataclasses import dataclass

from acker_api.problems import AGAIN, Problem
from acker_api.reading.canary import Flight
from acker_api.reading.reader import Survey
from acker_redis.doctor import health
from acker_redis.errors import AckerError, NamespaceNotFoundError

SHOWN = 20
"""Namespaces that a problem names at most."""


@dataclass(frozen=True)
class Readiness:
    """What is wrong; nothing, if nothing is."""

    namespaces: int
    canary: Flight
    """What came of a tree of the service's own."""
    redis: str = ""
    """Why Redis does not answer."""
    wrong: tuple[tuple[str, str], ...] = ()
    """Namespaces, and what is wrong with each."""

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.redis or self.wrong or self.canary.state == "failed")

    def __str__(self) -> str:
        """For a log."""
        if self.redis:
            return self.redis
        more = len(self.wrong) - SHOWN
        shown = [f"{name}: {what}" for name, what in self.wrong[:SHOWN]]
        if self.canary.state == "failed":
            shown = [f"canary: {self.canary.why}", *shown]
        return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])

    def problem(self, details: bool) -> Problem:
        """As a response; without ``details`` it names no namespace and no address."""
        if self.redis:
            detail = self.redis if details else "see the log of the service"
            return Problem(503, "redis-unavailable", "Redis does not answer", detail, headers=AGAIN)
        errors = [{"where": name, "what": what} for name, what in self.wrong[:SHOWN]]
        if self.canary.state == "failed":
            known = self.canary.why if details else self.canary.public
            return Problem(
                503,
                "canary",
                "Redis is read, and a tree of the service's own did not go the whole way",
                known or "see the log of the service",
                errors if details else (),
                AGAIN,
            )
        count = f"{len(self.wrong)} of {self.namespaces} namespaces"
        detail = f"{count}: is a rotator running? acker-redis rotator --all"
        return Problem(
            503,
            "not-ready",
            "Namespaces cannot be read, or are not rotated in time",
            detail,
            errors if details else (),
            AGAIN,
        )


def judge(survey: Survey, rotation: bool, canary: Flight) -> Readiness:
    """What is wrong, by what was read and done; without ``rotation`` a lag is not.

    A namespace that is not there is no fault of the service: its name outlives it while it is
    dropped. ``acker_up`` tells of it.
    """
    if survey.error:
        return Readiness(len(survey.found), canary, str(survey.error))
    wrong = []
    for name, seen in survey.found.items():
        if isinstance(seen, NamespaceNotFoundError):
            continue
        if isinstance(seen, AckerError):
            wrong.append((name, str(seen)))
        elif rotation and (finding := health.rotator(seen.status)).level == "error":
            wrong.append((name, finding.detail))
    return Readiness(len(survey.found), canary, wrong=tuple(wrong))
