"""A case as one line, and in full: what a line leaves out has the value that README.md says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proof.spec import spec

Json = Any
"""A value that json.loads returns."""
HERE = Path(__file__).parent
NAMESPACE = "vector"
SALT = "00112233445566778899aabbccddeeff"
CONFIG: Json = {
    "shards": 1,
    "buckets": 3,
    "tick_ms": 3_600_000,
    "high_water": 100_000,
    "refresh": "never",
    "deadline_ms": 0,
    "outcomes_limit": 1_000_000,
    "publish": True,
    "edges": [],
}
CREATE: Json = {"do": {"create": {}}}
COUNTERS = tuple(spec()["counters"])
OUTCOME = 8
"""Elements of an outcome."""
_APPLY = {"task": "", "producer": "", "seq": "", "digest": ""}
_CASE = {"name", "why", "breaks_rule", "config", "created", "steps", "state"}
_STEP = ("do", "refused", "error", "calls", "outcomes", "checksums")
_BUCKETS = ("pending", "blocks", "slots", "fences")
_RECORD = {"failed": False, "capped": False}
_BLOCK: Json = {"capped": False, "failed": [], "absent": []}


def load(here: Path = HERE) -> dict[str, Json]:
    """Return each case in full, by its file and its name: ``chains: one message``."""
    return {
        f"{path.stem}: {case['name']}": case
        for path in sorted(here.glob("*.jsonl"))
        for case in map(full, parse(path.read_text(encoding="utf-8")))
    }


def parse(text: str) -> Iterator[Json]:
    """Yield the cases of a file as they are written: each on one line, or on several."""
    decoder, at = json.JSONDecoder(), len(text) - len(text.lstrip())
    while at < len(text):
        case, at = decoder.raw_decode(text, at)
        yield case
        while at < len(text) and text[at].isspace():
            at += 1


def line(case: Json) -> str:
    """Return the line of a case, with letters that are not printable as escapes."""
    text = json.dumps(shortened(case), ensure_ascii=False)
    return re.sub(
        r"[^\x20-\x7e]", lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text
    )


def full(short: Json) -> Json:
    """Return a case with all its fields, from its line. Raise ValueError for an unknown field."""
    _check("case", short, _CASE)
    _check("config", short.get("config", {}), {*CONFIG})
    config = CONFIG | short.get("config", {})
    created = short.get("created", True)
    case = {
        **{name: short[name] for name in ("name", "why", "breaks_rule") if name in short},
        "namespace": NAMESPACE,
        "config": config,
        "salt": SALT,
        "steps": [_full_step(step) for step in short["steps"]],
        "state": [],
    }
    if created:
        calls = [_create(config, shard) for shard in range(config["shards"])]
        case["steps"].insert(0, CREATE | {"calls": calls, "outcomes": []})
        states = short.get("state", [])
        states = states + [{}] * (config["shards"] - len(states))
        case["state"] = [_full_state(state, config["buckets"]) for state in states]
    return case


def shortened(case: Json) -> Json:
    """Return the line of a case as a value, from the case in full."""
    steps = case["steps"]
    created = bool(steps) and steps[0].get("do") == {"create": {}}
    short = {name: case[name] for name in ("name", "why", "breaks_rule") if name in case}
    if config := {k: v for k, v in case["config"].items() if v != CONFIG[k]}:
        short["config"] = config
    if not created:
        short["created"] = False
    short["steps"] = [_short_step(step) for step in steps[created:]]
    states = [_short_state(state) for state in case["state"]]
    if any(states):
        short["state"] = _cut(states)
    return short


def keys_of(shard: int) -> list[str]:
    """Return both KEYS of a shard, in hex."""
    prefix = f"acker:{{{NAMESPACE}:{shard}}}"
    return [prefix.encode().hex(), f"{prefix}:meta".encode().hex()]


def create_argv(config: Json, shard: int) -> list[str]:
    """Return the arguments of create, in hex: the version of the schema, the shard, and so on."""
    values = [config[name] for name in CONFIG]
    words = ["2", shard, *values[:-2], "yes" if config["publish"] else "no"]
    return [str(word).encode().hex() for word in (*words, ",".join(config["edges"]), SALT)]


def _check(what: str, fields: Json, known: set[str]) -> None:
    if unknown := {*fields} - known:
        raise ValueError(f"a {what} has no {sorted(unknown)}; it may have {sorted(known)}")


def _create(config: Json, shard: int) -> Json:
    argv = create_argv(config, shard)
    return {"script": "create", "keys": keys_of(shard), "argv": argv, "reply": [1, SALT]}


def _full_step(step: Json) -> Json:
    if "redis" in step or "clock" in step:
        return step
    _check("step", step, {*_STEP})
    do = step.get("do")
    if do and "apply" in do:
        do = {"apply": _APPLY | do["apply"]}
        step = {"checksums": {}} | step if "refused" not in step else step
    calls = [_full_call(call) for call in step.get("calls", [])]
    outcomes = [
        [*outcome, *[""] * (OUTCOME - len(outcome))] for outcome in step.get("outcomes", [])
    ]
    return step | {"do": do, "calls": calls, "outcomes": outcomes}


def _short_step(step: Json) -> Json:
    if "redis" in step or "clock" in step:
        return step
    short = {name: value for name, value in step.items() if value}
    if "apply" in short.get("do", {}):
        short["do"] = {"apply": {n: v for n, v in short["do"]["apply"].items() if v != ""}}
    if step["calls"]:
        short["calls"] = [_short_call(call) for call in step["calls"]]
    if step.get("outcomes"):
        short["outcomes"] = [_cut(outcome) for outcome in step["outcomes"]]
    return {name: short[name] for name in _STEP if name in short}


def _full_call(call: Json) -> Json:
    script = next(iter(call))
    keys = [_hex(key) for key in call["keys"]] if "keys" in call else keys_of(call.get("shard", 0))
    argv = [None if arg is None else _hex(arg) for arg in call[script]]
    return {"script": script, "keys": keys, "argv": argv, "reply": _full_reply(call.get("reply"))}


def _short_call(call: Json) -> Json:
    short: Json = {call["script"]: [None if arg is None else _text(arg) for arg in call["argv"]]}
    shard = shard_of(call)
    if shard is None:
        short["keys"] = [_text(key) for key in call["keys"]]
    elif shard:
        short["shard"] = shard
    return short | {"reply": _short_reply(call["reply"])}


def shard_of(call: Json) -> int | None:
    """Return the shard of a call; None if its keys are not those of a shard."""
    found = re.search(r":(\d+)\}", bytes.fromhex((call["keys"] or [""])[0]).decode())
    return int(found[1]) if found and call["keys"] == keys_of(int(found[1])) else None


def _full_reply(reply: Json) -> Json:
    if isinstance(reply, list):
        return [_full_reply(element) for element in reply]
    if isinstance(reply, str) and reply.startswith("0x"):
        return {"hex": reply[2:]}
    return reply


def _short_reply(reply: Json) -> Json:
    if isinstance(reply, list):
        return [_short_reply(element) for element in reply]
    return f"0x{reply['hex']}" if isinstance(reply, dict) and "hex" in reply else reply


def _full_state(state: Json, buckets: int) -> Json:
    whole: Json = {name: list(state.get(name, [])) for name in _BUCKETS}
    for name, items in whole.items():
        empty: Json = 0 if name == "slots" else {}
        items += [empty] * (buckets - len(items))
    whole["pending"] = [_each(bucket, _RECORD) for bucket in whole["pending"]]
    whole["blocks"] = [_each(bucket, _BLOCK) for bucket in whole["blocks"]]
    whole["expiring"] = _each(state.get("expiring", {}), _RECORD)
    whole["blocks_expiring"] = _each(state.get("blocks_expiring", {}), _BLOCK)
    whole["counters"] = dict.fromkeys(COUNTERS, 0) | state.get("counters", {})
    for name in ("durable", "odd", "ended", "good", "backlog"):
        whole[name] = state.get(name, {})
    return whole


def _short_state(state: Json) -> Json:
    short = dict(state)
    for name, values in (("pending", _RECORD), ("blocks", _BLOCK)):
        short[name] = [_without(bucket, values) for bucket in state[name]]
    short["expiring"] = _without(state["expiring"], _RECORD)
    short["blocks_expiring"] = _without(state["blocks_expiring"], _BLOCK)
    short["counters"] = {name: n for name, n in state["counters"].items() if n}
    for name in _BUCKETS:
        short[name] = _cut(short[name])
    return {name: value for name, value in short.items() if value}


def _each(bucket: Json, values: Json) -> Json:
    return {name: values | fields for name, fields in bucket.items()}


def _without(bucket: Json, values: Json) -> Json:
    return {
        name: {k: v for k, v in fields.items() if k not in values or v != values[k]}
        for name, fields in bucket.items()
    }


def _cut(items: list[Json]) -> list[Json]:
    """Return a list without the empty items at its end."""
    while items and not items[-1]:
        items = items[:-1]
    return items


def _hex(text: str) -> str:
    return text[2:] if text.startswith("0x") else text.encode().hex()


def _text(argument: str) -> str:
    """Return printable text as it is, and other bytes as 0x and hex."""
    try:
        text = bytes.fromhex(argument).decode()
    except UnicodeDecodeError:
        return f"0x{argument}"
    return text if text.isprintable() and not text.startswith("0x") else f"0x{argument}"
