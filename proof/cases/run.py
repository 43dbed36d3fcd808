"""Run a case on a real server, byte by byte, as a runner in any language does.

The runner uses nothing of ``acker_redis`` but the texts of the scripts.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import redis.exceptions

from acker_redis.protocol import scripts
from proof.cases.lines import COUNTERS, Json
from proof.cases.packer import anchors

Client = Any
"""A redis.Redis. Its annotations do not help here."""
_TASK_LENGTH = 19


class MismatchError(AssertionError):
    """A reply or a state of the server that differs from the case."""


def run(client: Client, case: Json) -> None:
    """Empty the server, and play one case on it. Raise MismatchError if the server differs."""
    client.flushall()
    _Run(client, case).play()


class _Run:
    def __init__(self, client: Client, case: Json) -> None:
        self.client, self.case = client, case
        self.shards = [
            f"acker:{{{case['namespace']}:{n}}}" for n in range(case["config"]["shards"])
        ]
        self.seen: set[tuple[str, bytes]] = set()

    def play(self) -> None:
        for number, step in enumerate(self.case["steps"]):
            where = f"{self.case['name']}, step {number}"
            if self.changed(step):
                continue
            # A step without outcomes must produce none.
            told: list[Json] = []
            for call in step["calls"]:
                told += self.call(where, call)
            expected, drains = step.get("outcomes", []), {"expire", "expire_blocks"}
            if drains & set(step.get("do") or {}):
                told.sort()
                expected = sorted(expected)
            _same(f"{where}, outcomes", expected, told)
            if "checksums" in step:
                self.checksums(where, step)
        state = [s for s in map(self.state, self.shards) if s is not None]
        _same(f"{self.case['name']}, state", self.case["state"], state)

    def changed(self, step: Json) -> bool:
        """Run a step that calls no script, and return whether it was one."""
        if "redis" in step:
            self.client.execute_command(*step["redis"])
        for prefix in self.shards if "clock" in step else ():
            self.advance(prefix, step["clock"])
        return "redis" in step or "clock" in step

    def advance(self, prefix: str, ms: int) -> None:
        """Move the clock of a shard: all that it has stored becomes older by ``ms``."""
        self.client.execute_command("HINCRBY", f"{prefix}:meta", "ticked_ms", -ms)
        buckets = range(self.case["config"]["buckets"])
        firsts = {f"{prefix}:pending:{i}": 9 for i in buckets} | {f"{prefix}:expiring": 9}
        firsts |= {f"{prefix}:blocks:{i}": 0 for i in buckets} | {f"{prefix}:blocks_expiring": 0}
        for key, at in firsts.items():
            for name, old in self.client.hgetall(key).items():
                first = (int.from_bytes(old[at : at + 6], "big") - ms).to_bytes(6, "big")
                moved = old[:at] + first + old[at + 6 :]
                self.client.execute_command("HSET", key, name, moved)
        durable = f"{prefix}:fence:durable"
        for lane, fence in self.client.hgetall(durable).items():
            rest, _, used = fence.rpartition(b":")
            self.client.execute_command("HSET", durable, lane, b"%b:%d" % (rest, int(used) - ms))

    def call(self, where: str, call: Json) -> list[Json]:
        """Send a call, compare its reply, and return the new outcomes."""
        prefix = bytes.fromhex(call["keys"][0]).decode()
        refused = isinstance(call["reply"], dict)
        before = self.dump() if refused else None
        _same(f"{where}, reply", call["reply"], self.send(call, prefix))
        if refused:
            _same(f"{where}, keys after an error", before, self.dump())
        return [] if refused else list(self.new_outcomes(prefix))

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
        """Yield the new outcomes of a shard, by task, in the order of the stream."""
        start = f"{prefix}:outcomes:".encode()
        streams = [k for k in self.client.keys("*") if k.startswith(start)]
        for stream in sorted(streams):
            task = stream.removeprefix(start).decode()
            for id_, fields in self.client.xrange(stream):
                if (stream, id_) in self.seen:
                    continue
                self.seen.add((stream, id_))
                outcomes = list(_block_outcomes(fields) if b"block" in fields else _loose(fields))
                _same("n of an entry", max(1, len(outcomes)), int(fields[b"n"]))
                yield from ([task, *outcome] for outcome in outcomes)

    def checksums(self, where: str, step: Json) -> None:
        """Compare the checksum of each pending tree in the rows of a batch.

        A refused call has changed nothing, and was compared as a whole.
        """
        if step["calls"] and isinstance(step["calls"][-1]["reply"], dict):
            return
        found = {}
        states = [self.state(prefix) for prefix in self.shards]
        for anchor in anchors(step["do"]["apply"]["rows"]):
            block, slot = anchor >> 12 & 2**50 - 1, anchor & 4095
            in_block = anchor >> 62 == 1
            state = states[(block if in_block else anchor) % len(states)]
            name = f"{block:013x}" if in_block else f"{anchor:016x}"
            for bucket in state["blocks" if in_block else "pending"]:
                sums = bucket.get(name, {}).get("checksums" if in_block else "checksum")
                if sums and not in_block:
                    found[name] = sums
                elif sums and slot < len(sums):
                    found[f"{anchor:016x}"] = sums[slot]
        _same(f"{where}, checksums", step["checksums"], found)

    def state(self, prefix: str) -> Json:
        """Return the state of a shard; None if it was not created."""
        raw = self.client.hgetall(f"{prefix}:meta")
        if not raw:
            return None
        meta = {name.decode(): value.decode() for name, value in raw.items()}
        n, current = int(meta["buckets"]), int(meta["current"])
        newest_first = [(current - age) % n for age in range(n)]
        durable = self._texts(f"{prefix}:fence:durable")
        blocks = [self._blocks(prefix, f"blocks:{i}") for i in newest_first]
        blocks_expiring = self._blocks(prefix, "blocks_expiring")
        self._nothing_else(prefix, [*blocks, blocks_expiring])
        slots = [int(meta.get(f"slots:{i}", 0)) for i in newest_first]
        _same("slots of all buckets", sum(slots), int(meta.get("slots", 0)))
        return {
            "pending": [self._records(f"{prefix}:pending:{i}") for i in newest_first],
            "expiring": self._records(f"{prefix}:expiring"),
            "blocks": blocks,
            "blocks_expiring": blocks_expiring,
            "slots": slots,
            "fences": [self._texts(f"{prefix}:fence:{i}") for i in newest_first],
            "durable": {lane: value.rpartition(":")[0] for lane, value in durable.items()},
            "counters": {name: int(meta[name]) for name in COUNTERS},
            "odd": {k[4:]: int(v) for k, v in meta.items() if k.startswith("odd:")},
            "ended": _by_task(meta, "ended:"),
            "good": _by_task(meta, "good:"),
            "backlog": {k[8:]: int(v) for k, v in meta.items() if k.startswith("backlog:")},
        }

    def dump(self) -> Json:
        """Return every key with its value. Not DUMP: its bytes depend on the order of a table."""
        read = {b"hash": self.client.hgetall, b"stream": self.client.xrange}
        return {
            key: read.get(self.client.type(key), self.client.dump)(key)
            for key in sorted(self.client.keys("*"))
        }

    def _texts(self, key: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.client.hgetall(key).items()}

    def _records(self, key: str) -> Json:
        return {anchor.hex(): _record(r) for anchor, r in self.client.hgetall(key).items()}

    def _blocks(self, prefix: str, bucket: str) -> Json:
        return {
            number.hex()[3:]: self._block(prefix, number.hex()[3:], header)
            for number, header in self.client.hgetall(f"{prefix}:{bucket}").items()
        }

    def _block(self, prefix: str, name: str, header: bytes) -> Json:
        """Parse a header: times 10, flags 1, slots 2, digest 8, length 1, task, label."""
        checksums = self.client.get(f"{prefix}:block:{name}")
        _same("bytes of a block", 8 * int.from_bytes(header[11:13], "big"), len(checksums))
        label, held = 22 + header[21], self._slots(f"{prefix}:present:{name}")
        failed = self._slots(f"{prefix}:failed:{name}")
        _same("a block with absent slots", bool(header[10] & 2), bool(held))
        _same("a block with failed slots", bool(header[10] & 4), bool(failed))
        return {
            "label": header[label:].decode(),
            "task": header[22:label].decode(),
            "digest": header[13:21].decode(),
            "capped": bool(header[10] & 1),
            "checksums": [checksums[i : i + 8].hex() for i in range(0, len(checksums), 8)],
            "failed": failed,
            "absent": sorted(set(range(len(checksums) // 8)) - set(held)) if held else [],
        }

    def _slots(self, key: str) -> list[int]:
        return _slots((self.client.get(key) or b"").hex())

    def _nothing_else(self, prefix: str, buckets: list[Json]) -> None:
        """Check that ended blocks and calls left no key."""
        blocks = {name: block for bucket in buckets for name, block in bucket.items()}
        found = {key.decode().removeprefix(f"{prefix}:") for key in self.client.keys("*")}
        _same(
            f"{prefix}, keys of blocks",
            sorted(
                [f"block:{name}" for name in blocks]
                + [f"failed:{name}" for name, block in blocks.items() if block["failed"]]
                + [f"present:{name}" for name, block in blocks.items() if block["absent"]]
            ),
            sorted(
                key for key in found if key.startswith(("block:", "failed:", "present:", "scratch"))
            ),
        )


def _by_task(meta: dict[str, str], prefix: str) -> Json:
    """Return a counter of ``meta`` per task, without those that are 0."""
    size = len(prefix)
    return {k[size:]: int(v) for k, v in meta.items() if k.startswith(prefix) and int(v)}


def _record(record: bytes) -> Json:
    """Parse a record: checksum 8, flags 1, times 10, length of the task 1, task, escaped text."""
    text = _TASK_LENGTH + 1 + record[_TASK_LENGTH]
    return {
        "checksum": record[:8].hex(),
        "failed": bool(record[8] & 1),
        "capped": bool(record[8] & 2),
        "task": record[_TASK_LENGTH + 1 : text].decode(),
        "text": json.loads(f'"{record[text:].decode()}"'),
    }


def _loose(fields: dict[bytes, bytes]) -> Iterator[Json]:
    """Yield the verdicts of an entry on loose trees."""
    verdict, reason = fields[b"verdict"].decode(), fields[b"reason"].decode()
    for anchor, source_id, _, text, *more in json.loads(fields[b"rows"]):
        # Of an expired tree: cause, residual, idle time.
        said = ["", text, more[0]] if reason == "expired" else [text, "", ""]
        yield [verdict, reason, anchor, source_id, *said]


def _block_outcomes(fields: dict[bytes, bytes]) -> Iterator[Json]:
    """Yield the verdicts of a block's entry, slot by slot, by the table of lua/README.md."""
    verdict, reason, label = (fields[name].decode() for name in (b"verdict", b"reason", b"label"))
    base = 1 << 62 | int(fields[b"block"], 16) << 12
    if b"rows" in fields:
        for slot, why in json.loads(fields[b"rows"]):
            yield [verdict, reason, f"{base | slot:016x}", label, why, "", ""]
        return
    residuals = iter(re.findall("." * 16, fields.get(b"residuals", b"").decode()))
    failed, nacked, present = (
        set(_slots(fields.get(name, b"").decode())) for name in (b"failed", b"nacked", b"present")
    )
    for slot in range(int(fields[b"slots"])):
        if slot in failed or (present and slot not in present):
            continue
        said, more = [verdict, reason], ["", ""]
        if verdict == "mixed" and slot in nacked:
            said, more = ["nack", "expired"], [fields[b"cause"].decode(), next(residuals)]
        elif verdict == "mixed":
            said = ["ack", "completed"]
        yield [*said, f"{base | slot:016x}", label, "", *more]


def _slots(bitmap: str) -> list[int]:
    """Return the slots of a bitmap in hex: bit 7 of byte 0 is slot 0."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in bitmap)
    return [slot for slot, bit in enumerate(bits) if bit == "1"]


def _same(what: str, expected: Json, found: Json) -> None:
    if not _equal(expected, found):
        raise MismatchError(f"{what}: {found!r} is not {expected!r}")


def _equal(expected: Json, found: Json) -> bool:
    """Return whether both are equal; null in a reply matches any value."""
    if expected is None:
        return True
    if isinstance(found, bytes):
        if isinstance(expected, dict) and "hex" in expected:
            return _masked(expected["hex"], found.hex())
        return bool(expected == found.decode("latin-1"))
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_equal, expected, found))
    return type(expected) is type(found) and bool(expected == found)


def _masked(expected: str, found: str) -> bool:
    """Return whether the hex is equal; ?? matches any byte."""
    pairs = zip(expected, found, strict=False)
    return len(expected) == len(found) and all(e in ("?", f) for e, f in pairs)
