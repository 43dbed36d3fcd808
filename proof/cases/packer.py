"""From the operation of a step to its calls, written from README.md of this folder alone.

It uses nothing of ``acker_redis``: it writes the calls that each client must make. If a client
makes the same bytes, then the page is sufficient.
"""

from collections.abc import Iterator
from typing import Any

from proof.cases.lines import Json, create_argv

Row = dict[str, Any]
Call = tuple[str, list[str], list[str]]
"""A script, and KEYS and ARGV in hex."""
# From lua/spec.json, by python -m proof.spec
MAX_BLOCKS = 64


def calls(do: Json, config: Json, namespace: str) -> list[Call]:
    """Return the calls of an operation, in order; those of ``take`` without the ids of entries."""
    ((verb, fields),) = do.items()
    shards = range(config["shards"])
    if verb == "apply":
        return _apply(fields, len(shards), namespace)
    if verb == "show":
        anchor = int(fields["anchor"])
        shard = _shard_of(anchor, len(shards))
        return [("show", _keys(namespace, shard), [f"{anchor:016x}"])]
    if verb == "alive":
        asked: dict[int, str] = {}
        for anchor in map(int, fields["anchors"]):
            shard = _shard_of(anchor, len(shards))
            asked[shard] = asked.get(shard, "") + f"{anchor:016x}"
        return [(verb, _keys(namespace, n), [column]) for n, column in asked.items()]
    if verb == "create":
        return [(verb, _keys(namespace, n), create_argv(config, n)) for n in shards]
    argv = [_text(str(int(v) if isinstance(v, bool) else v)) for v in fields.values()]
    return [(verb, _keys(namespace, n), argv) for n in shards]


def anchors(rows: list[Json]) -> Iterator[int]:
    """Yield the anchors in the rows of a batch; for a tracked block, those of its slots."""
    for row in rows:
        ((verb, fields),) = row.items()
        if verb == "track_block":
            for slot in range(len(fields["deltas"])):
                yield 1 << 62 | int(fields["block"]) << 12 | slot
        else:
            yield int(fields["anchor"])


def _shard_of(anchor: int, shards: int) -> int:
    return (anchor >> 12 & 2**50 - 1 if anchor >> 62 else anchor) % shards


def _keys(namespace: str, shard: int) -> list[str]:
    prefix = f"acker:{{{namespace}:{shard}}}"
    return [_text(prefix), _text(prefix + ":meta")]


def _apply(do: Json, shards: int, namespace: str) -> list[Call]:
    parts: list[tuple[str, int, list[str]]] = []
    rows, tracked = _folded(do["rows"]), _tracked(do)
    loose: dict[int, dict[int, Row]] = {}
    blocks: dict[int, dict[int, Row]] = {number: {} for number in tracked}
    for anchor, row in rows.items():
        if anchor >> 62:
            blocks.setdefault(anchor >> 12 & 2**50 - 1, {})[anchor & 4095] = row
        else:
            loose.setdefault(anchor % shards, {})[anchor] = row
    for shard, its in loose.items():
        parts.append(("apply", shard, _loose(its, do["task"])))
    packed: dict[int, list[list[str]]] = {}
    for number, slots in blocks.items():
        packed.setdefault(number % shards, []).append(_block(number, slots, tracked.get(number)))
    for shard, arguments in packed.items():
        for first in range(0, len(arguments), MAX_BLOCKS):
            call = [arg for block in arguments[first : first + MAX_BLOCKS] for arg in block]
            parts.append(("apply_blocks", shard, call))
    return [
        (script, _keys(namespace, shard), [_text(do["producer"]), _fence(do, number), *argv])
        for number, (script, shard, argv) in enumerate(parts)
    ]


def _folded(rows: list[Any]) -> dict[int, Row]:
    """Fold rows by anchor, without those of track_block."""
    folded: dict[int, Row] = {}
    for row in rows:
        ((verb, fields),) = row.items()
        if verb == "track_block":
            continue
        one = folded.setdefault(int(fields["anchor"]), {"flags": 0, "delta": 0})
        for tuple_id in [*fields.get("emitted", []), fields.get("tuple", "0")]:
            one["delta"] ^= int(tuple_id)
        if verb == "track":
            one["flags"] |= 1
            one["source"] = fields["source_id"]
        elif verb == "fail":
            one["flags"] |= 2
            one["why"] = one.get("why") or fields["why"]
        elif verb == "touch":
            one["flags"] |= 4
    return folded


def _tracked(do: Any) -> dict[int, Any]:
    """Return the tracked blocks: number -> task, label and deltas."""
    found = {}
    for row in do["rows"]:
        if "track_block" in row:
            fields = row["track_block"]
            deltas = [int(delta) for delta in fields["deltas"]]
            found[int(fields["block"])] = (do["task"], fields["label"], deltas)
    return found


def _fence(do: Any, number: int) -> str:
    if not do["producer"]:
        return ""
    return _text(str(int(do["seq"]) + number) + (":" + do["digest"] if do["digest"] else ""))


def _loose(rows: dict[int, Row], task: str) -> list[str]:
    """Return the arguments of apply after the fence."""
    sources = [one["source"] for one in rows.values() if one["flags"] & 1]
    whys = [one["why"] for one in rows.values() if one["flags"] & 2]
    return [
        "".join(f"{one['flags']:02x}" for one in rows.values()),
        "".join(f"{anchor:016x}" for anchor in rows),
        "".join(f"{one['delta']:016x}" for one in rows.values()),
        _text(task if sources else ""),
        *map(_text, sources + whys),
    ]


def _block(number: int, rows: dict[int, Row], tracked: Any) -> list[str]:
    """Return the seven arguments of one block."""
    flags, header, slots = 0, "", ""
    if any(one["flags"] & 4 for one in rows.values()):
        flags |= 4
    deltas = {slot: rows[slot]["delta"] for slot in sorted(rows) if rows[slot]["delta"]}
    if tracked:
        flags |= 1
        task, label, column = tracked
        header = f"{len(column):04x}{len(task):02x}" + _text(task) + _text(label)
        dense = [delta ^ deltas.get(slot, 0) for slot, delta in enumerate(column)]
        packed = "".join(f"{delta:016x}" for delta in dense)
    else:
        slots = "".join(f"{slot:04x}" for slot in deltas)
        packed = "".join(f"{delta:016x}" for delta in deltas.values())
    failed = ""
    for slot in sorted(rows):
        if rows[slot]["flags"] & 2:
            why = _text(rows[slot]["why"])
            failed += f"{slot:04x}{len(why) // 2:02x}" + why
    return [f"{flags:02x}", f"{number:016x}", header, "", slots, packed, failed]


def _text(text: str) -> str:
    return text.encode().hex()
