"""Replay a history from a file: the steps of a counterexample, on the reference or on a server.

The model checker finds such a history (``proof/model/``). ``acker-redis simulate --history FILE``
replays it. The file is JSON::

    {"history": 1, "title": "..", "buckets": 2, "life": 0, "whole_rows": true,
     "truthful": true, "messages": 2, "ids": [], "steps": [STEP, ..]}

- ``life``: with ``refresh=update``, the number of the tick after its first row that ends a tree;
  0 for ``refresh=never``.
- ``whole_rows``: whether clients keep the three rules; otherwise complete trees need not be acked.
- ``truthful``: whether the steps state what a correct shard does.
- ``ids``: edge ids that are given, as ``[message, cause, id]``; all others are drawn.

Each step has ``say``, a sentence, and ``do``:

- ``emit``: ``messages`` exist from now on; with ``if_applied``, only if the shard has accepted the
  last batch. ``fail``: a bolt fails ``messages``.
- ``apply``: ``lane``, ``number`` and one row: ``done`` and ``made``, messages; ``flags`` out of
  TRACK, FAIL and TOUCH; ``links``, the ids in its delta, as pairs of a message and its cause (0:
  the source).
- ``tick``, ``drain``, ``snapshot``, ``failover``; ``note``: nothing happens on the shard.

``apply`` and ``drain`` may state ``verdicts``, the reasons of the verdicts that the model has
written, and ``apply`` its ``reply``: applied, repeated or changed.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from acker_redis.errors import AckerError, ChangedBatchError, ConfigError
from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.config import AckerConfig
from proof.oracle import FAIL, FALSE_ACK, TOUCH, TRACK, Link, Reply, Violation
from proof.simulate.backends import Backend
from proof.simulate.batches import FoldedRow, Sent
from proof.simulate.clock import Clock
from proof.simulate.service import Service
from proof.simulate.trace import Trace
from proof.simulate.trees import Tree
from proof.simulate.world import MakeBackends

TICK_MS = 3_600_000
"""An hour: the real time that passes while a server works does not matter."""
TASK = "orders"
ANCHOR = 1
ID_MAX = 2**63 - 1
FLAGS = {"TRACK": TRACK, "FAIL": FAIL, "TOUCH": TOUCH}
ACTIONS = ("emit", "fail", "apply", "tick", "drain", "snapshot", "failover", "note")


@dataclass(frozen=True, slots=True)
class History:
    """A history that was read from a file."""

    title: str
    config: AckerConfig
    whole_rows: bool
    truthful: bool
    ids: dict[Link, int]
    steps: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it was replayed."""

    say: str
    reply: str = ""
    """The reply of the shard: applied, repeated, changed, the name of another error, or ''."""
    verdicts: tuple[str, ...] = ()
    """Reasons of the verdicts that the shard has written."""
    different: str = ""
    """What the file states, if the shard has done something else."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay, up to the first violation."""

    steps: tuple[Step, ...]
    violation: Violation | None

    @property
    def verdicts(self) -> list[str]:
        """Reasons of all verdicts, in order."""
        return [verdict for step in self.steps for verdict in step.verdicts]

    @property
    def different(self) -> list[Step]:
        """The steps in which the shard has not done what the file states."""
        return [step for step in self.steps if step.different]


def load(path: Path) -> History:
    """Read a history. Raise ConfigError if the file is not one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
        version, life = found["history"], found["life"]
        if version != 1:
            raise ConfigError(f"{path}: format {version!r} of a history; this version reads 1")
        for number, step in enumerate(found["steps"], start=1):
            if wrong := _wrong(step):
                raise ConfigError(f"{path}: step {number}: {wrong}")
        config = AckerConfig(
            buckets=found["buckets"],
            tick_ms=TICK_MS,
            refresh="update" if life else "never",
            # The first row comes after a tick, so its deadline comes after a tick as well.
            deadline_ms=(life - 1) * TICK_MS if life else 0,
        )
        ids = {(message, cause): id_ for message, cause, id_ in found["ids"]}
        if not all(_is_number(word) for link, id_ in ids.items() for word in (*link, id_)):
            raise ConfigError(f"{path}: an entry of ids is three whole numbers, 0 to 2^63-1")
        whole, truthful = found["whole_rows"], found["truthful"]
        if not (type(whole) is type(truthful) is bool and isinstance(found["title"], str)):
            raise ConfigError(f"{path}: title is a text, whole_rows and truthful are true or false")
        return History(found["title"], config, whole, truthful, ids, tuple(found["steps"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a history: {type(error).__name__}: {error}") from error


def _is_number(word: object) -> bool:
    return type(word) is int and 0 <= word <= ID_MAX


def _is_list(kind: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda found: isinstance(found, list) and all(map(kind, found))


def _is_text(word: object) -> bool:
    return isinstance(word, str)


def _is_link(found: object) -> bool:
    return _is_list(_is_number)(found) and len(cast("list[int]", found)) == 2


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "say": (_is_text, "a text"),
    "lane": (_is_text, "a text"),
    "number": (lambda word: _is_number(word) and word > 0, "a whole number from 1"),
    "messages": (_is_list(_is_number), "a list of whole numbers"),
    "done": (_is_list(_is_number), "a list of whole numbers"),
    "made": (_is_list(_is_number), "a list of whole numbers"),
    "flags": (_is_list(lambda flag: flag in FLAGS), "a list out of TRACK, FAIL and TOUCH"),
    "links": (_is_list(_is_link), "a list of pairs of whole numbers"),
    "reply": (_is_text, "a text"),
    "verdicts": (_is_list(_is_text), "a list of texts"),
}
"""What the fields of a step are."""
_NEEDED = {
    "emit": ("messages",),
    "fail": ("messages",),
    "apply": ("lane", "number", "done", "made", "flags", "links"),
}
"""The fields that a step must have, besides ``say``."""


def _wrong(step: Any) -> str:
    """Return why a step is invalid; '' if it is valid."""
    if not isinstance(step, dict):
        return "it is no JSON object"
    do = step.get("do")
    if do not in ACTIONS:
        return f"do is one of {', '.join(ACTIONS)}, not {do!r}"
    if missing := [name for name in ("say", *_NEEDED.get(do, ())) if name not in step]:
        return f"{do} needs {', '.join(missing)}"
    for name, (is_right, wanted) in _FIELDS.items():
        if name in step and not is_right(step[name]):
            return f"{name} is {wanted}, not {step[name]!r}"[:200]
    return ""


def replay(history: History, make: MakeBackends) -> Replayed:
    """Play all steps on the shards that ``make`` creates, checked by the oracle."""
    return _Stage(history, make(history.config, (TASK,))).play()


class _Stage:
    def __init__(self, history: History, backends: Sequence[Backend]) -> None:
        self._steps, self._ids = history.steps, history.ids
        self._accepted = True
        self._clock = Clock()
        liveness = history.whole_rows
        self._service = Service(history.config, backends, self._clock, Trace(), liveness)
        self._tree = Tree(ANCHOR, "s1")
        self._service.trees[ANCHOR] = self._tree

    def play(self) -> Replayed:
        done: list[Step] = []
        for step in self._steps:
            before = len(self._service.oracle.waiting.get(TASK, ()))
            reply = ""
            try:
                reply = self._play(step)
            except Violation as violation:
                acked = ("completed",) if violation.kind == FALSE_ACK else ()
                done.append(Step(step["say"], reply, acked))
                return Replayed(tuple(done), violation)
            told = self._service.oracle.waiting.get(TASK, ())[before:]
            verdicts = tuple(outcome.reason for outcome in told if outcome.verdict != "touch")
            stated = ", ".join([step.get("reply", reply), *step.get("verdicts", verdicts)])
            found = ", ".join([reply, *verdicts])
            done.append(Step(step["say"], reply, verdicts, stated if stated != found else ""))
        return Replayed(tuple(done), None)

    def _play(self, step: dict[str, Any]) -> str:
        service = self._service
        match step["do"]:
            case "emit":
                if self._accepted or not step.get("if_applied"):
                    self._tree.exists.update(step["messages"])
            case "fail":
                self._tree.failed.update(step["messages"])
            case "apply":
                reply = service.apply(self._sent(step))
                self._accepted = isinstance(reply, ShardApplied)
                return _word(reply)
            case "tick":
                self._clock.now += TICK_MS
                service.rotate()
            case "drain":
                service.expire()
            case "snapshot":
                service.snapshot()
            case "failover":
                service.fail_over()
        return ""

    def _sent(self, step: dict[str, Any]) -> Sent:
        links: list[Link] = [(number, cause) for number, cause in step["links"]]
        odd: frozenset[Link] = frozenset()
        delta = 0
        for link in links:
            delta ^= self._ids.get(link) or id_of(link)
            odd ^= {link}
        row = FoldedRow(
            self._tree,
            sum(FLAGS[flag] for flag in step["flags"]),
            delta=delta,
            why="failed" if "FAIL" in step["flags"] else "",
            done=tuple(step["done"]),
            made=tuple(step["made"]),
            links=odd,
        )
        return Sent(step["lane"], step["number"], TASK if row.flags & TRACK else "", [row])


def id_of(link: Link) -> int:
    """Return the edge id of a link, 1 to 2^63-1: the same in each replay."""
    digest = hashlib.sha256(f"{link[0]} of {link[1]}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 1) or 1


def _word(reply: Reply) -> str:
    if isinstance(reply, ChangedBatchError):
        return "changed"
    if isinstance(reply, AckerError):
        return type(reply).__name__
    return "applied" if reply.highest is None else "repeated"
