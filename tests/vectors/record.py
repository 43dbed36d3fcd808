"""Play declared operations on the reference model, and record the calls, replies and verdicts.

Replies, verdicts and states come from ``oracle.py``. Validation errors, which the reference does
not model, are written by hand.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from acker_redis.batching.sent import Part
from acker_redis.errors import BacklogError, ChangedBatchError, ConfigError, InvalidBatchError
from acker_redis.protocol.blocks import BlockPart, Blocks
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import CREATED
from acker_redis.protocol.config import wire as setting
from acker_redis.protocol.ids import shard_of, split_anchor
from acker_redis.protocol.keys import ShardKeys
from tests.support import config_of
from tests.vectors.operations import (
    EXPIRE_BLOCKS,
    EXPIRE_RECORDS,
    SALT,
    Json,
    anchors_of,
    call_of,
    calls_of,
    fence_of,
    parts_of,
    wire,
)
from tests.vectors.oracle import Oracle

NAMESPACE = "vector"
REPLY = ("now", "age", "record", "checksums", "failed", "present")
"""The elements of a reply of show; the last three only of a block."""
_CODES: dict[type[Exception], str] = {BacklogError: "BACKLOG", ChangedBatchError: "CONFLICT"}


class Vector:
    """One vector: operations in the order of their declaration."""

    def __init__(self, name: str, why: str, breaks_rule: int | None, fields: Json) -> None:
        self.config = config_of(fields)
        self._head: Json = {"name": name, "why": why}
        if breaks_rule:
            self._head["breaks_rule"] = breaks_rule
        self._steps: list[Json] = []
        self._shards: list[Oracle] = []

    def json(self) -> Json:
        """Return the vector as it is in its file."""
        return {
            **self._head,
            "namespace": NAMESPACE,
            "config": {name: getattr(self.config, name) for name in CREATED}
            | {"edges": list(self.config.edges)},
            "salt": SALT,
            "steps": self._steps,
            "state": [shard.state() for shard in self._shards],
        }

    def create(self) -> None:
        """Create the namespace, or create it again, which changes nothing."""
        made = int(not self._shards)
        self._shards = self._shards or [Oracle(self.config) for _ in range(self.config.shards)]
        self._all({"create": {}}, lambda _: [made, SALT])

    def apply(
        self, *rows: Json, task: str = "", producer: str = "", seq: int = 0, digest: str = ""
    ) -> None:
        """Apply a batch. A refused call ends it: the later calls are not sent."""
        do = _apply(rows, task, producer, seq, digest)
        fields = do["apply"]
        calls: list[Json] = []
        outcomes: list[Json] = []
        for number, part in enumerate(parts_of(fields, self.config.shards)):
            fence = fence_of(fields, number)
            call, told = self._send(part, fence)
            calls.append(call)
            outcomes += told
            # A client also stops if its lane is at a higher number: the lane was forked.
            if isinstance(call["reply"], dict) or _above(call["reply"], fence):
                break
        self._steps.append(
            {
                "do": do,
                "calls": calls,
                "outcomes": outcomes,
                "checksums": self._checksums(anchors_of(fields)),
            }
        )

    def blocks(self, *parts: BlockPart, shard: int = 0) -> None:
        """Send packed blocks as they are: a column that a client may pack in another way."""
        call, told = self._send(Part(shard, Blocks(parts)), None)
        self._steps.append({"do": None, "calls": [call], "outcomes": told})

    def refused(self, *rows: Json, task: str = "") -> None:
        """Record a batch that the client itself refuses: nothing is sent."""
        do = _apply(rows, task, "", 0, "")
        try:
            parts_of(do["apply"], self.config.shards)
        except (InvalidBatchError, ConfigError):
            self._steps.append({"do": do, "refused": True, "calls": []})
        else:
            raise AssertionError(f"the client does not refuse {do}")

    def rotate(self, force: bool = True) -> None:
        """Call rotate for each shard."""
        self._all({"rotate": {"force": force}}, lambda shard: shard.rotate(force))

    def expire(self) -> None:
        """Call expire for each shard."""
        self._all({"expire": {"records": EXPIRE_RECORDS}}, lambda shard: shard.expire())

    def expire_blocks(self) -> None:
        """Call expire_blocks for each shard."""
        do = {"expire_blocks": {"blocks": EXPIRE_BLOCKS}}
        self._all(do, lambda shard: shard.expire_blocks())

    def tick(self, times: int = 1) -> None:
        """Rotate, and drain the expiring records and blocks, if any."""
        for _ in range(times):
            self.rotate()
            if any(shard.reference.expiring for shard in self._shards):
                self.expire()
            if any(shard.reference.blocks_expiring for shard in self._shards):
                self.expire_blocks()

    def take(self, task: str) -> None:
        """Take all verdicts that wait, on each shard that has some."""
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
        """Call status for each shard."""
        self._all({"status": {}}, lambda shard: shard.status())

    def show(self, anchor: int) -> None:
        """Call show for a tree, loose or in a block."""
        do = {"show": {"anchor": str(anchor)}}
        (call,) = calls_of(do, self.config, NAMESPACE)
        reply = self._shard_of(anchor).show(anchor)
        self._steps.append({"do": do, "calls": [_call(call, reply)]})

    def damaged(self, anchor: int, **fields: bytes | None) -> None:
        """Call show for a tree whose keys were tampered with: the client raises SCHEMA.

        ``fields`` are the elements of the reply that differ from what the model has (``REPLY``);
        None for a missing key.
        """
        do = {"show": {"anchor": str(anchor)}}
        (call,) = calls_of(do, self.config, NAMESPACE)
        reply = self._shard_of(anchor).show(anchor)
        if len(reply) == 1:  # the model has no such tree
            reply = [
                None,
                0,
                None,
                *([None, {"hex": ""}, {"hex": ""}] if split_anchor(anchor) else []),
            ]
        for name, value in fields.items():
            reply[REPLY.index(name)] = None if value is None else {"hex": value.hex()}
        self._steps.append({"do": do, "calls": [_call(call, reply)], "error": "SCHEMA"})

    def raw(
        self,
        script: str,
        *args: str | bytes | int,
        error: str = "",
        reply: Json = None,
        shard: int = 0,
        keys: tuple[str, ...] | None = None,
    ) -> None:
        """Send a call that no client's API makes. It changes nothing."""
        names = ShardKeys(NAMESPACE, shard).both if keys is None else keys
        call = Call(script, names, args)  # type: ignore[arg-type]
        self._steps.append(
            {"do": None, "calls": [_call(call, {"error": error} if error else reply)]}
        )

    def configure(self, **changes: int | float) -> None:
        """Change settings of all shards; each of them must have another value before."""
        calls = []
        words = tuple(
            word for name, value in changes.items() for word in (name, setting(name, value))
        )
        for number, shard in enumerate(self._shards):
            shard.reference.config = replace(shard.reference.config, **changes)  # type: ignore[arg-type]
            call = Call("configure", ShardKeys(NAMESPACE, number).both, words)
            calls.append(_call(call, len(changes)))
        self._steps.append({"do": None, "calls": calls})

    def reshard(self, value: str) -> None:
        """Close all shards for a reshard, or open them again."""
        calls = []
        for number, shard in enumerate(self._shards):
            shard.reference.reshard = bool(value)
            call = Call("configure", ShardKeys(NAMESPACE, number).both, ("reshard", value))
            calls.append(_call(call, 1))
        self._steps.append({"do": None, "calls": calls})

    def redis(self, *words: str) -> None:
        """Send a plain Redis command that tampers with the keys."""
        self._steps.append({"redis": list(words)})

    def _send(self, part: Part, fence: Fence | None) -> tuple[Json, list[Json]]:
        shard = self._shards[part.shard]
        call = call_of(part, fence, NAMESPACE)
        try:
            reply = shard.apply(part.rows, fence)
        except (BacklogError, ChangedBatchError) as error:
            reply = {"error": _CODES[type(error)]}
        return _call(call, reply), shard.told()

    def _checksums(self, anchors: list[int]) -> Json:
        found = {anchor: self._shard_of(anchor).checksum(anchor) for anchor in anchors}
        return {f"{anchor:016x}": sum_ for anchor, sum_ in found.items() if sum_ is not None}

    def _shard_of(self, anchor: int) -> Oracle:
        return self._shards[shard_of(anchor, self.config.shards)]

    def _all(self, do: Json, ask: Callable[["Oracle"], Json]) -> None:
        calls, outcomes = [], []
        wires = calls_of(do, self.config, NAMESPACE)
        for shard, call in zip(self._shards, wires, strict=True):
            calls.append(_call(call, ask(shard)))
            outcomes += sorted(shard.told(), key=lambda o: (o[0], o[3]))
        step: Json = {"do": do, "calls": calls}
        if "expire" in do or "expire_blocks" in do:
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
        """Declare a vector: the decorated function plays its operations."""

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
        """Return the content of the file."""
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


def _above(reply: Json, fence: Fence | None) -> bool:
    return fence is not None and reply[0] == 0 and int(reply[1]) > fence.seq


def _call(call: Call, reply: Json) -> Json:
    return {
        "script": call.script,
        "keys": [wire(key) for key in call.keys],
        "argv": [wire(argument) for argument in call.args],
        "reply": reply,
    }
