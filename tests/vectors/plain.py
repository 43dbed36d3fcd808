"""From a batch to the calls of ``apply`` once more, by README.md of this folder alone.

Nothing of ``acker_redis`` is used: if both say the same bytes, then the page suffices.
"""

from typing import Any


def apply_calls(do: Any, shards: int, namespace: str) -> list[tuple[list[str], list[str]]]:
    """KEYS and ARGV in hex of each call, in the order in which the shards appear."""
    folded: dict[int, dict[str, Any]] = {}
    for row in do["rows"]:
        ((verb, fields),) = row.items()
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
    by_shard: dict[int, dict[int, dict[str, Any]]] = {}
    for anchor, one in folded.items():
        by_shard.setdefault(anchor % shards, {})[anchor] = one
    fence = do["seq"] + (":" + do["digest"] if do["digest"] else "") if do["producer"] else ""
    calls = []
    for shard, rows in by_shard.items():
        prefix = f"acker:{{{namespace}:{shard}}}"
        sources = [one["source"] for one in rows.values() if one["flags"] & 1]
        whys = [one["why"] for one in rows.values() if one["flags"] & 2]
        argv = [
            _text(do["producer"]),
            _text(fence),
            "".join(f"{one['flags']:02x}" for one in rows.values()),
            "".join(f"{anchor:016x}" for anchor in rows),
            "".join(f"{one['delta']:016x}" for one in rows.values()),
            _text(do["task"] if sources else ""),
            *map(_text, sources + whys),
        ]
        calls.append(([_text(prefix), _text(prefix + ":meta")], argv))
    return calls


def _text(text: str) -> str:
    return text.encode().hex()
