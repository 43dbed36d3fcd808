"""Findings of the doctor, and the report of all findings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Level = Literal["ok", "skipped", "warning", "error"]

TITLES = {
    "reachable": "Redis answers",
    "version": "Server version",
    "transport": "Protection of the connection",
    "password": "Access without a password",
    "eviction": "Eviction of keys",
    "memory": "Memory",
    "persistence": "Persistence",
    "listpack": "Encoding of hashes",
    "stalls": "Server stalls",
    "slow-scripts": "Scripts in the slow log",
    "role": "Master or replica",
    "replicas": "Replicas",
    "sentinels": "Sentinels",
    "cluster-state": "Cluster state",
    "cluster-slots": "Cluster slots",
    "cluster-replicas": "Cluster replicas",
    "cluster-spread": "Spread of shards over masters",
    "clock": "Clocks",
    "clients": "Clients",
    "retries": "Retries by the client library",
    "rights": "User rights",
    "namespace": "Namespace and shards",
    "rotator": "Rotator",
    "drain": "Drain of expired trees",
    "high-water": "High-water mark",
    "outcomes": "Waiting verdicts",
    "nacks": "Nacked trees",
    "acks": "Acked trees",
    "congestion": "Useless work",
    "window": "Windows of sources",
    "counters": "Overflows, conflicts and orphans",
    "oldest": "Age of the oldest tree",
    "reshard": "Reshard",
    "fences": "Fences",
    "sources": "Source names",
    "tick": "Tick length",
    "canaries": "Leftover canaries",
    "canary": "Canary round trip",
    "pubsub": "Verdicts on pub/sub",
    "latency": "Script latency",
}
"""Title of every finding by its id. An id names the subject of the check, not its result."""

_RANK: dict[Level, int] = {"ok": 0, "skipped": 0, "warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    >>> finding = warning("memory", "maxmemory is 0", "redis-cli CONFIG SET maxmemory 2gb")
    >>> finding.level, finding.title
    ('warning', 'Memory')
    """

    id: str
    """A key of ``TITLES``; it does not change between versions."""
    level: Level
    """``skipped``: the check was not possible; ``fix`` says how to enable it."""
    detail: str
    """The result, with figures."""
    fix: str = ""
    """How to repair it, in one sentence with the command; '' if there is nothing to do."""
    where: str = ""
    """The nodes (HOST:PORT) or the namespace that were checked; '' for the whole Redis."""
    headline: str = ""
    """The problem in a few words, for narrow views; '' if there is none."""

    @property
    def title(self) -> str:
        """Return the subject of the check in a few words."""
        return TITLES[self.id]

    def to_dict(self) -> dict[str, str]:
        """Return all fields and the title, for JSON."""
        return {**asdict(self), "title": self.title}


def ok(id_: str, detail: str, where: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(id_, "ok", detail, "", where)


def skipped(id_: str, detail: str, fix: str, where: str = "") -> Finding:
    """Return a finding for a check that was not possible."""
    return Finding(id_, "skipped", detail, fix, where)


def warning(id_: str, detail: str, fix: str, where: str = "", headline: str = "") -> Finding:
    """Return a finding for a problem that does not stop the acker."""
    return Finding(id_, "warning", detail, fix, where, headline)


def error(id_: str, detail: str, fix: str, where: str = "", headline: str = "") -> Finding:
    """Return a finding for a part that does not work, or that loses trees."""
    return Finding(id_, "error", detail, fix, where, headline)


def merge(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Merge equal findings of several nodes, in the order of their first node."""
    nodes: dict[Finding, list[str]] = {}
    for finding in findings:
        nodes.setdefault(replace(finding, where=""), []).append(finding.where)
    for finding, names in nodes.items():
        yield replace(finding, where=", ".join(filter(None, names)))


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of an examination.

    >>> Report((ok("memory", "512 MiB of 2 GiB"),)).exit_code
    0
    """

    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """Return 0 without problems, 1 if there are warnings, 2 if there are errors."""
        return max((_RANK[finding.level] for finding in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return ``exit_code``, the number of findings per level, and ``findings``; for JSON."""
        counts = Counter(finding.level for finding in self.findings)
        return {
            "exit_code": self.exit_code,
            **{level: counts[level] for level in _RANK},
            "findings": [finding.to_dict() for finding in self.findings],
        }
