"""Plays declared operations on the reference, and notes what a client sends and is told.

Replies, verdicts and states come from ``oracle.py``. Errors of the validation, which the
reference does not model, are stated by hand.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from acker_redis.commands import Call
from acker_redis.config import AckerConfig
from acker_redis.errors import BacklogError, ChangedBatchError, ConfigError, InvalidBatchError
from acker_redis.keys import ShardKeys
from tests.vectors.operations import (
    EXPIRE_RECORDS,
    Json,
    batch_of,
    calls_of,
    wire,
)
from tests.vectors.oracle import Oracle

NAMESPACE = "vector"
HOUR = 3_600_000
_CODES: dict[type[Exception], str] = {BacklogError: "BACKLOG", ChangedBatchError: "CONFLICT"}


class Vector:
    """One vector: operations in the order in which they are declared."""

    def __init__(self, name: str, why: str, breaks_rule: int | None, fields: Json) -> None:
        # Nothing in a vector takes an hour: only forced ticks happen.
        self.config = AckerConfig(**{"tick_ms": HOUR, **fields})
        self._head: Json = {"name": name, "why": why}
        if breaks_rule:
            self._head["breaks_rule"] = breaks_rule
        self._steps: list[Json] = []
        self._shards: list[Oracle] = []

    def json(self) -> Json:
        """The vector as it stands in its file."""
        return {
            **self._head,
            "namespace": NAMESPACE,
            "config": asdict(self.config),
            "steps": self._steps,
            "state": [shard.state() for shard in self._shards],
        }

    def create(self) -> None:
        """Create the namespace, or find that it is there."""
        made = int(not self._shards)
        self._shards = self._shards or [Oracle(self.config) for _ in range(self.config.shards)]
        self._all({"create": {}}, lambda _: made)

    def apply(
        self, *rows: Json, task: str = "", producer: str = "", seq: int = 0, digest: str = ""
    ) -> None:
        """Apply a batch; after a refusal the shards behind it are not asked."""
        do = _apply(rows, task, producer, seq, digest)
        fields = do["apply"]
        parts = batch_of(fields).columns(self.config.shards)
        calls: list[Json] = []
        outcomes: list[Json] = []
        checksums: Json = {}
        wires = calls_of(do, self.config, NAMESPACE)
        for (number, part), call in zip(parts.items(), wires, strict=True):
            shard = self._shards[number]
            try:
                reply: Json = shard.apply(part, fields)
            except (BacklogError, ChangedBatchError) as error:
                calls.append(_call(call, {"error": _CODES[type(error)]}))
                break
            calls.append(_call(call, reply))
            outcomes += shard.told()
            checksums |= shard.checksums(part)
        step = {"do": do, "calls": calls, "outcomes": outcomes, "checksums": checksums}
        self._steps.append(step)

    def refused(self, *rows: Json, task: str = "") -> None:
        """A batch that the client itself refuses: nothing is sent."""
        do = _apply(rows, task, "", 0, "")
        try:
            batch_of(do["apply"])
        except (InvalidBatchError, ConfigError):
            self._steps.append({"do": do, "refused": True, "calls": []})
        else:
            raise AssertionError(f"the client does not refuse {do}")

    def rotate(self, force: bool = True) -> None:
        """One call of rotate for each shard."""
        self._all({"rotate": {"force": force}}, lambda shard: shard.rotate(force))

    def expire(self) -> None:
        """One call of expire for each shard."""
        self._all({"expire": {"records": EXPIRE_RECORDS}}, lambda shard: shard.expire())

    def tick(self, times: int = 1) -> None:
        """Rotate, and drain if there is something to drain."""
        for _ in range(times):
            self.rotate()
            if any(shard.reference.expiring for shard in self._shards):
                self.expire()

    def take(self, task: str) -> None:
        """Take all that waits, where something waits."""
        do = {"take": {"task": task}}
        calls = []
        for number, call in enumerate(calls_of(do, self.config, NAMESPACE)):
            entries, verdicts = self._shards[number].take(task)
            if entries:
                one = _call(call, [entries, verdicts, 0, entries])
                one["argv"] += [None] * entries
                calls.append(one)
        self._steps.append({"do": do, "calls": calls})

    def status(self) -> None:
        """Ask for the state."""
        self._all({"status": {}}, lambda shard: shard.status())

    def raw(
        self,
        script: str,
        *args: str | bytes | int,
        error: str = "",
        reply: Json = None,
        shard: int = 0,
        keys: tuple[str, ...] | None = None,
    ) -> None:
        """A call that no client's API makes; it changes nothing."""
        names = ShardKeys(NAMESPACE, shard).both if keys is None else keys
        call = Call(script, names, args)  # type: ignore[arg-type]
        self._steps.append(
            {"do": None, "calls": [_call(call, {"error": error} if error else reply)]}
        )

    def redis(self, *words: str) -> None:
        """A plain command by which somebody tampers with the keys."""
        self._steps.append({"redis": list(words)})

    def _all(self, do: Json, ask: Callable[["Oracle"], Json]) -> None:
        calls, outcomes = [], []
        wires = calls_of(do, self.config, NAMESPACE)
        for shard, call in zip(self._shards, wires, strict=True):
            calls.append(_call(call, ask(shard)))
            outcomes += sorted(shard.told(), key=lambda o: (o[0], o[3]))
        step: Json = {"do": do, "calls": calls}
        if "expire" in do:
            step["outcomes"] = outcomes
        self._steps.append(step)


class Topic:
    """A file of vectors."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._declared: list[Callable[[], Vector]] = []

    def vector(
        self,
        name: str,
        why: str,
        *,
        created: bool = True,
        breaks_rule: int | None = None,
        **config: Any,
    ) -> Callable[[Callable[[Vector], None]], None]:
        """Declare a vector: the function below says its operations."""

        def declare(play: Callable[[Vector], None]) -> None:
            def make() -> Vector:
                vector = Vector(name, why, breaks_rule, config)
                if created:
                    vector.create()
                play(vector)
                return vector

            self._declared.append(make)

        return declare

    def json(self) -> Json:
        """The file."""
        vectors = [make().json() for make in self._declared]
        names = [vector["name"] for vector in vectors]
        assert len(set(names)) == len(names), names
        return {"about": self.about, "vectors": vectors}


def _apply(rows: tuple[Json, ...], task: str, producer: str, seq: int, digest: str) -> Json:
    return {
        "apply": {
            "task": task,
            "producer": producer,
            "seq": str(seq) if producer else "",
            "digest": digest,
            "rows": list(rows),
        }
    }


def _call(call: Call, reply: Json) -> Json:
    return {
        "script": call.script,
        "keys": [wire(key) for key in call.keys],
        "argv": [wire(argument) for argument in call.args],
        "reply": reply,
    }
