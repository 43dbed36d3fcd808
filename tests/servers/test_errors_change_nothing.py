"""After an error reply of a script, the keyspace is unchanged to the last byte, for any input.

The tests mutate valid calls in one or two places, on a shard with all kinds of state. A call that
is not refused may write, but only to keys of its own shard.
"""

import random
from collections import Counter

import pytest
import redis
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from acker_redis.protocol import commands, scripts
from acker_redis.protocol.alive import alive
from acker_redis.protocol.blocks import pack_deltas, pack_track
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import FAIL, TOUCH, TRACK, columns, dump, fail, row, send, tick, touch, track
from tests.tiers import examples

A = 0x1234_5678_9ABC
ODD: list[bytes] = [
    *(b"", b"0", b"1", b"-1", b"01", b"1.5", b"inf", b"nan", b"9007199254740993", b"1e3", b" 1"),
    *(b"\0" * 7, b"\0" * 8, b"\xff" * 8, b"\x40" + b"\0" * 7, b"\x80" * 16, b"\x08", b"\7\7"),
    *(b"t", b"a b", b"x" * 65, b"x" * 256, b"\xc3", b"\n", b"@lane", b"1:ab", b"1-0", b"(1-0"),
]


def calls(keys: ShardKeys) -> dict[str, Call]:
    """Return valid calls of all scripts."""
    rows = [(1, A, TRACK), (2, A, 0), (3, 0, FAIL), (4, A, TOUCH), (50, A, 0), (51, A, TRACK)]
    part = columns(rows, "t", ["s1", "s51", "why"])
    blocks = [
        pack_track(1, "t", "label", [A, A, 0]),
        pack_track(5, "t", "label", [A, 0, A, *[0] * 8], present=[0, 2, 9]),
        pack_deltas(2, {0: A, 1: A}, {1: "why"}, touch=True),
        pack_deltas(3, {0: A, 4000: A}, dense=False),
    ]
    return {
        "create": commands.create(keys, AckerConfig(tick_ms=3_600_000), "0" * 32),
        "apply": commands.apply(keys, part, Fence("p", 9, "ab")),
        "apply_blocks": commands.apply_blocks(keys, blocks, Fence("p", 9, "ab")),
        "expire_blocks": commands.expire_blocks(keys, 4),
        "rotate": commands.rotate(keys, force=True),
        "expire": commands.expire(keys, 10),
        "take": commands.take(keys, "t", ["1-0", "2-0"]),
        "status": commands.status(keys),
        "show": commands.show(keys, block_anchor(2, 1)),
        "alive": alive(keys, [1, block_anchor(2, 1), 60]),
        "report": commands.report(keys, "t", ()),
        "configure": commands.configure(keys, {"high_water": 50_000, "tick_ms": 3_600_000}),
        "list": commands.list_page(keys, "pending", 0, 0, 10, "s", "t"),
    }


def some_state(acker: Acker) -> None:
    """Create records, fences, verdicts, and a partially drained bucket."""
    for anchor in range(60, 160):
        track(acker, anchor, A, f"s{anchor}")
    tick(acker, 2)
    acker.connection.run(commands.rotate(ShardKeys(acker.namespace, 0), force=True))
    acker.connection.run(commands.expire(ShardKeys(acker.namespace, 0), 10))
    for anchor in (2, 3, 4, 5):
        track(acker, anchor, A)
    fail(acker, 6, "early")
    row(acker, 5, A)
    touch(acker, 4)
    send(acker, columns([(7, A, 0)]), Fence("p", 8, "aa"))
    send(acker, columns([(8, A, 0)]), Fence("@lane", 8, "aa"))
    keys = ShardKeys(acker.namespace, 0)
    tracked = [
        pack_track(2, "t", "label", [A, A, A]),
        pack_track(3, "t", "label", [A, 0, A], present=[0, 2]),
        pack_track(4, "t", "label", [A, A, A]),
    ]
    acker.connection.run(commands.apply_blocks(keys, tracked, None))


def spoil(call: Call, chance: random.Random) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and arguments of a call with one or two mutations."""
    keys = [key.encode() for key in call.keys]
    args = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in call.args]
    for _ in range(chance.choice([1, 1, 2])):
        place = chance.choice([args, args, args, args, keys])
        at = chance.randrange(len(place)) if place else 0
        kind = chance.randrange(6)
        if not place or kind == 0:
            place.insert(at, chance.choice(ODD))
        elif kind == 1:
            del place[at]
        elif kind == 2:
            place[at] = chance.choice(ODD)
        elif kind == 3 and place[at]:
            cut = chance.randrange(len(place[at]))
            place[at] = place[at][:cut] + bytes([chance.randrange(256)]) + place[at][cut + 1 :]
        elif kind == 4:
            place[at] = place[at][: chance.randrange(len(place[at]) + 1)]
        else:
            place[at] = chance.randbytes(chance.choice([1, 8, 48, 300]))
    return keys, args


# A drop that succeeds would delete the state: see test_drop.py.
SCRIPTS = [name for name in scripts.NAMES if name != "drop"]
refused: Counter[str] = Counter()


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.sampled_from(SCRIPTS), seed=st.integers(0, 2**32))
def fuzz(acker: Acker, script: str, seed: int) -> None:
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    wrong_keys, args = spoil(calls(keys)[script], random.Random(seed))
    before = dump(acker)
    error = ""
    try:
        client.eval(scripts.load(script).source, len(wrong_keys), *wrong_keys, *args)
    except redis.exceptions.ResponseError as caught:
        error = str(caught)
    event(f"{script}: {error[:12] or 'accepted'}")
    if error:
        refused[script] += 1
        assert error.startswith("ACKER ")
        assert dump(acker) == before
    else:
        for key in dump(acker).keys() - before.keys():
            own = (keys.prefix.encode(), *wrong_keys)
            assert key.startswith(own), f"{key!r} is not of this shard"


def test_errors_change_nothing(make_acker: MakeAcker) -> None:
    acker = make_acker()
    some_state(acker)
    refused.clear()
    many = ("apply", "apply_blocks", "take", "rotate", "expire", "expire_blocks")
    many += ("show", "alive", "list")
    for _ in range(50):
        fuzz(acker)
        if min(refused[script] for script in many) > examples(0.2):
            return
    raise AssertionError(f"too few refusals to prove anything: {refused}")


@pytest.mark.parametrize("seq", ["9007199254740993", "9007199254740992", "inf", "1e15", "1" * 16])
def test_numbers_that_a_double_cannot_hold_are_refused(make_acker: MakeAcker, seq: str) -> None:
    acker = make_acker()
    some_state(acker)
    call = calls(ShardKeys(acker.namespace, 0))["apply"]
    before = dump(acker)
    with pytest.raises(redis.exceptions.ResponseError, match="ACKER ARGS a fence must be"):
        acker.connection.client.eval(
            scripts.load("apply").source, 2, *call.keys, "p", seq, *call.args[2:]
        )
    assert dump(acker) == before
