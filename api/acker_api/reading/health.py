"""Readiness of the service: Redis accepts trees and returns verdicts, and a rotator runs."""

from dataclasses import dataclass

from acker_api.problems import AGAIN, Problem
from acker_api.reading.canary import Flight
from acker_api.reading.reader import ReadStatus, Survey
from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.operate import code_of, health

SHOWN = 20
"""Maximum number of namespaces that a problem names."""


@dataclass(frozen=True)
class Readiness:
    """The problems that a check has found."""

    namespaces: int
    canary: Flight
    """The result of the canary."""
    redis: str = ""
    """Why Redis does not answer."""
    wrong: tuple[tuple[str, str], ...] = ()
    """Namespaces, and the problem of each."""

    @property
    def ready(self) -> bool:
        """Whether the check has found no problem."""
        return not (self.redis or self.wrong or self.canary.state == "failed")

    def __str__(self) -> str:
        """Return the problems on one line, for the log."""
        if self.redis:
            return self.redis
        more = len(self.wrong) - SHOWN
        shown = [f"{name}: {what}" for name, what in self.wrong[:SHOWN]]
        if self.canary.state == "failed":
            shown = [f"canary: {self.canary.why}", *shown]
        return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])

    def problem(self, details: bool) -> Problem:
        """Return the problems as a response; without ``details`` it names no namespace or host."""
        if self.redis:
            detail = self.redis if details else "see the log of the service"
            return Problem(503, "redis-unavailable", "Redis unavailable", detail, headers=AGAIN)
        errors = [{"where": name, "what": what} for name, what in self.wrong[:SHOWN]]
        if self.canary.state == "failed":
            known = self.canary.why if details else self.canary.public
            return Problem(
                503,
                "canary",
                "Canary failed",
                known or "see the log of the service",
                errors if details else (),
                AGAIN,
            )
        count = f"{len(self.wrong)} of {self.namespaces} namespaces"
        detail = (
            f"{count} cannot be read, or none is rotated in time; is a rotator running? "
            "acker-redis rotator --all"
        )
        return Problem(
            503,
            "not-ready",
            "Not ready",
            detail,
            errors if details else (),
            AGAIN,
        )


def judge(survey: Survey, rotation: bool, canary: Flight) -> Readiness:
    """Return the readiness by a survey and a canary; without ``rotation``, ignore late ticks.

    No single namespace makes the service unready, or a producer that damages its own keys would
    keep all users from the service. The overview, ``acker_up`` and the alerts name that namespace.
    A namespace that does not exist is no problem either: during a drop, its name is listed longer
    than it exists.
    """
    if survey.error:
        return Readiness(len(survey.found), canary, str(survey.error))
    wrong, late = [], []
    for name, seen in survey.found.items():
        if isinstance(seen, ReadStatus):
            late.append((name, health.rotator(seen.status)))
        elif _is_of_redis(seen):
            wrong.append((name, str(seen)))
    if rotation and late and all(finding.level == "error" for _, finding in late):
        wrong += [(name, finding.detail) for name, finding in late]
    return Readiness(len(survey.found), canary, wrong=tuple(wrong))


def _is_of_redis(error: AckerError) -> bool:
    """Return whether Redis does not answer or refuses the service; not that keys are damaged."""
    if isinstance(error, RedisRefusedError):
        return code_of(error) != "WRONGTYPE"
    return isinstance(error, RedisUnavailableError)
