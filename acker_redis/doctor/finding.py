"""What the doctor finds: findings, and the report they make up."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Level = Literal["ok", "skipped", "warning", "error"]

TITLES = {
    "reachable": "Redis answers",
    "version": "Version of the server",
    "transport": "What the line is protected by",
    "password": "Who may connect without a password",
    "eviction": "Eviction of keys",
    "memory": "Memory",
    "persistence": "Persistence",
    "listpack": "Layout of hashes",
    "stalls": "Stalls of the server",
    "slow-scripts": "Scripts in the slow log",
    "role": "Master or replica",
    "replicas": "Replicas",
    "sentinels": "Sentinels",
    "cluster-state": "State of the cluster",
    "cluster-slots": "Slots of the cluster",
    "cluster-replicas": "Replicas in the cluster",
    "cluster-spread": "Shards over the masters",
    "clock": "Clocks",
    "clients": "Clients of the server",
    "retries": "The client's own retries",
    "rights": "Rights of the user",
    "namespace": "The namespace and its shards",
    "rotator": "Rotator",
    "drain": "Drain of what has expired",
    "high-water": "High-water mark",
    "outcomes": "Verdicts that wait",
    "nacks": "Trees that are nacked",
    "acks": "Trees that are acked",
    "counters": "Trees that went wrong",
    "oldest": "Age of the oldest tree",
    "reshard": "Reshard to other shards",
    "fences": "Fences",
    "tasks": "Names of sources",
    "tick": "Length of a tick",
    "canaries": "Canaries of other doctors",
    "canary": "Round trip of a canary",
    "pubsub": "Verdicts on pub/sub",
    "latency": "Latency of the scripts",
}
"""Title by id, of every finding there is. An id says what was looked at, whatever was found."""

_RANK: dict[Level, int] = {"ok": 0, "skipped": 0, "warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    >>> finding = warning("memory", "maxmemory is 0", "redis-cli CONFIG SET maxmemory 2gb")
    >>> finding.level, finding.title
    ('warning', 'Memory')
    """

    id: str
    """A key of ``TITLES``; it does not change between versions."""
    level: Level
    """``skipped``: it could not be looked at, and ``fix`` says what for."""
    detail: str
    """What was found, with figures."""
    fix: str = ""
    """What to do, in one sentence with what to type; '' if nothing is to be done."""
    where: str = ""
    """The nodes (HOST:PORT) or the namespace that it is about; '' for all of it."""
    headline: str = ""
    """What is wrong in a few words, where there is little room; '' if nothing is."""

    @property
    def title(self) -> str:
        """What was looked at, in a few words."""
        return TITLES[self.id]

    def to_dict(self) -> dict[str, str]:
        """All fields and the title, for JSON."""
        return {**asdict(self), "title": self.title}


def ok(id_: str, detail: str, where: str = "") -> Finding:
    """Nothing is wrong."""
    return Finding(id_, "ok", detail, "", where)


def skipped(id_: str, detail: str, fix: str, where: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(id_, "skipped", detail, fix, where)


def warning(id_: str, detail: str, fix: str, where: str = "", headline: str = "") -> Finding:
    """It works, and should be otherwise."""
    return Finding(id_, "warning", detail, fix, where, headline)


def error(id_: str, detail: str, fix: str, where: str = "", headline: str = "") -> Finding:
    """It does not work, or loses trees."""
    return Finding(id_, "error", detail, fix, where, headline)


def merge(findings: Iterable[Finding]) -> Iterator[Finding]:
    """One finding for the nodes that say the same, in the order of the first of each."""
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
        """0 if nothing is wrong, 1 if there are warnings, 2 if there are errors."""
        return max((_RANK[finding.level] for finding in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """``exit_code``, how many findings of each level, and ``findings``; for JSON."""
        counts = Counter(finding.level for finding in self.findings)
        return {
            "exit_code": self.exit_code,
            **{level: counts[level] for level in _RANK},
            "findings": [finding.to_dict() for finding in self.findings],
        }
