"""Runs a vector against a real server, byte for byte, as a runner in any language does.

Of ``acker_redis`` only the texts of the scripts are used.
"""

import json
from collections.abc import Iterator
from typing import Any

import redis.exceptions

from acker_redis import scripts

Json = Any
Client = Any
"""A redis.Redis; its annotations are of no use here."""
_TASK_LENGTH = 15


class Mismatch(AssertionError):
    """The server says, or holds, something else than the vector."""


def run(client: Client, vector: Json) -> None:
    """Play one vector on a server that is emptied first; raises Mismatch."""
    client.flushall()
    _Run(client, vector).play()


class _Run:
    def __init__(self, client: Client, vector: Json) -> None:
        self.client, self.vector = client, vector
        self.shards = [
            f"acker:{{{vector['namespace']}:{n}}}" for n in range(vector["config"]["shards"])
        ]
        self.seen: set[tuple[str, bytes]] = set()

    def play(self) -> None:
        for number, step in enumerate(self.vector["steps"]):
            where = f"{self.vector['name']}, step {number}"
            if "redis" in step:
                self.client.execute_command(*step["redis"])
                continue
            called = []
            for call in step["calls"]:
                prefix = bytes.fromhex(call["keys"][0]).decode()
                refused = isinstance(call["reply"], dict)
                before = self.dump() if refused else None
                _same(f"{where}, reply", call["reply"], self.send(call, prefix))
                if refused:
                    _same(f"{where}, keys after an error", before, self.dump())
                called.append(prefix)
            # Also where the vector has none: then there must be none.
            told = [outcome for prefix in called for outcome in self.new_outcomes(prefix)]
            expected = step.get("outcomes", [])
            if "expire" in (step.get("do") or {}):
                told.sort()
                expected = sorted(expected)
            _same(f"{where}, outcomes", expected, told)
            if "checksums" in step:
                self.checksums(where, step)
        state = [s for s in map(self.state, self.shards) if s is not None]
        _same(f"{self.vector['name']}, state", self.vector["state"], state)

    def send(self, call: Json, prefix: str) -> Json:
        script = scripts.load(call["script"])
        keys = [bytes.fromhex(key) for key in call["keys"]]
        argv = [bytes.fromhex(arg) for arg in call["argv"] if arg is not None]
        entries = call["argv"].count(None)
        if entries:
            stream = f"{prefix}:outcomes:{argv[0].decode()}"
            argv += [id_ for id_, _ in self.client.xrange(stream, count=entries)]
        rest = (len(keys), *keys, *argv)
        try:
            try:
                return self.client.execute_command("EVALSHA", script.sha, *rest)
            except redis.exceptions.NoScriptError:
                return self.client.execute_command("EVAL", script.source, *rest)
        except redis.exceptions.ResponseError as error:
            words = str(error).split()
            if words[0] != "ACKER":
                raise
            return {"error": words[1]}

    def new_outcomes(self, prefix: str) -> Iterator[Json]:
        """Outcomes of a shard that were not seen before: by task, in the order of its stream."""
        start = f"{prefix}:outcomes:".encode()
        streams = [k for k in self.client.keys("*") if k.startswith(start)]
        for stream in sorted(streams):
            task = stream.removeprefix(start).decode()
            for id_, fields in self.client.xrange(stream):
                if (stream, id_) in self.seen:
                    continue
                self.seen.add((stream, id_))
                rows = json.loads(fields[b"rows"])
                _same("n of an entry", len(rows), int(fields[b"n"]))
                verdict, reason = fields[b"verdict"].decode(), fields[b"reason"].decode()
                for anchor, source_id, _, why in rows:
                    yield [task, verdict, reason, anchor, source_id, why]

    def checksums(self, where: str, step: Json) -> None:
        """Of each anchor in a call that was not refused."""
        found = {}
        for call in step["calls"]:
            if isinstance(call["reply"], dict):
                continue
            prefix = bytes.fromhex(call["keys"][0]).decode()
            pending = self.state(prefix)["pending"]
            anchors = call["argv"][3]
            for anchor in (anchors[i : i + 16] for i in range(0, len(anchors), 16)):
                for bucket in pending:
                    if anchor in bucket:
                        found[anchor] = bucket[anchor]["checksum"]
        _same(f"{where}, checksums", step["checksums"], found)

    def state(self, prefix: str) -> Json:
        """What a shard holds; None if it was not created."""
        raw = self.client.hgetall(f"{prefix}:meta")
        if not raw:
            return None
        meta = {name.decode(): value.decode() for name, value in raw.items()}
        n, current = int(meta["buckets"]), int(meta["current"])
        newest_first = [(current - age) % n for age in range(n)]
        durable = self._texts(f"{prefix}:fence:durable")
        return {
            "pending": [self._records(f"{prefix}:pending:{i}") for i in newest_first],
            "expiring": self._records(f"{prefix}:expiring"),
            "fences": [self._texts(f"{prefix}:fence:{i}") for i in newest_first],
            "durable": {lane: value.rpartition(":")[0] for lane, value in durable.items()},
            "counters": {name: int(meta[name]) for name in _COUNTERS},
            "backlog": {k[8:]: int(v) for k, v in meta.items() if k.startswith("backlog:")},
        }

    def dump(self) -> Json:
        """Every key and what it holds. Not DUMP: its bytes depend on how a table is read."""
        read = {b"hash": self.client.hgetall, b"stream": self.client.xrange}
        return {
            key: read.get(self.client.type(key), self.client.dump)(key)
            for key in sorted(self.client.keys("*"))
        }

    def _texts(self, key: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.client.hgetall(key).items()}

    def _records(self, key: str) -> Json:
        return {anchor.hex(): _record(r) for anchor, r in self.client.hgetall(key).items()}


_COUNTERS = (
    "tracked", "acked", "failed", "expired", "overflow", "conflict", "repeated", "orphaned",
)  # fmt: skip


def _record(record: bytes) -> Json:
    """checksum 8, flags 1, first seen 6, length of the task 1, task, text."""
    text = _TASK_LENGTH + 1 + record[_TASK_LENGTH]
    return {
        "checksum": record[:8].hex(),
        "failed": bool(record[8] & 1),
        "task": record[_TASK_LENGTH + 1 : text].decode(),
        "text": record[text:].decode(),
    }


def _same(what: str, expected: Json, found: Json) -> None:
    if not _equal(expected, found):
        raise Mismatch(f"{what}: {found!r} is not {expected!r}")


def _equal(expected: Json, found: Json) -> bool:
    """Whether they are equal; null in a reply is anything."""
    if expected is None:
        return True
    if isinstance(found, bytes):
        return bool(expected == {"hex": found.hex()} or expected == found.decode("latin-1"))
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_equal, expected, found))
    return type(expected) is type(found) and bool(expected == found)
