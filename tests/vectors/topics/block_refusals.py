"""Vectors of invalid blocks, and of states in which valid blocks are refused."""

import struct

from acker_redis.protocol.blocks import pack_deltas
from tests.vectors.operations import Json, ack, track, track_block
from tests.vectors.record import Topic, Vector
from tests.vectors.topics.refusals import BAD_TEXTS, FILL

refusals = Topic(
    "blocks_refusals",
    "Invalid calls of apply_blocks, expire_blocks and show: an error code, and nothing was "
    "changed. A correct client does not send the calls with 'do': null.",
)
TOPICS = [refusals]
A, B = 0x2B7E151628AED2A6, 0x4142434445464748
BIT = 1 << 62
NUMBER = (7).to_bytes(8, "big")
OTHER = (9).to_bytes(8, "big")
TWO = (2).to_bytes(8, "big")
PREFIX = "acker:{vector:0}"


def header(slots: int = 1, task: bytes = b"t", label: bytes = b"b") -> bytes:
    """Return the header of a TRACK, valid or not."""
    return struct.pack(">HB", slots, len(task)) + task + label


def failure(slot: int, why: bytes = b"no") -> bytes:
    """Return one failure of the column ``failed``."""
    return struct.pack(">HB", slot, len(why)) + why


def block(
    *, flags: bytes = b"\0", number: bytes = NUMBER, head: bytes = b"", present: bytes = b"",
    slots: bytes = b"\0\0", deltas: bytes = TWO, failed: bytes = b"",
) -> tuple[bytes, ...]:  # fmt: skip
    """Return the seven arguments of a block, valid by default."""
    return flags, number, head, present, slots, deltas, failed


def tracked(**changed: bytes) -> tuple[bytes, ...]:
    """Return the seven arguments of a TRACK of a new block."""
    return block(**({"flags": b"\1", "number": OTHER, "head": header(), "slots": b""} | changed))


def _send(
    v: Vector, *blocks: tuple[bytes, ...], producer: str = "", fence: str = "",
    error: str = "ARGS", shard: int = 0,
) -> None:  # fmt: skip
    arguments = [argument for each in blocks for argument in each]
    v.raw("apply_blocks", producer, fence, *arguments, error=error, shard=shard)


def _some(v: Vector) -> None:
    """Create a state that an invalid batch could damage."""
    rows: list[Json] = [track_block(7, "b7", A, B)]
    v.apply(*rows, task="t", producer="p", seq=5, digest="aa")


@refusals.vector("ARGS: arguments", "Two, plus seven for each block; at least one block.")
def _(v: Vector) -> None:
    _some(v)
    words = (b"", b"", *block(), *block(number=OTHER))
    for count in (0, 1, 2, 8, 10, 15):
        v.raw("apply_blocks", *words[:count], error="ARGS")


@refusals.vector("ARGS: flags", "One byte: TRACK 1, TOUCH 4. FAIL 2 is not a flag of a block.")
def _(v: Vector) -> None:
    _some(v)
    for flags in (b"", b"\0\0", b"\2", b"\3", b"\6", b"\7", b"\x08", b"\x80", b"\xff"):
        _send(v, block(flags=flags))


@refusals.vector("ARGS: numbers", "8 bytes, up to 2^50 - 1, and no duplicates.")
def _(v: Vector) -> None:
    _some(v)
    for number in (2**50, 2**62 | 7, 2**63, 2**64 - 1):
        _send(v, block(number=number.to_bytes(8, "big")))
    _send(v, block(number=b""))
    _send(v, block(number=NUMBER[1:]))
    _send(v, block(number=NUMBER + b"\0"))
    _send(v, block(), block())
    _send(v, block(), block(number=OTHER), block(slots=b"\0\1"))


@refusals.vector("ARGS: columns", "8 bytes a delta; slots of 2 bytes that ascend up to 4094.")
def _(v: Vector) -> None:
    _some(v)
    for slots, deltas in (
        (b"\0", TWO), (b"\0\0\0", TWO), (b"\0\0", b""), (b"\0\0\0\1", TWO), (b"\0\0", TWO * 2),
        (b"\0\0", TWO[1:]), (b"", TWO[1:]), (b"", TWO + b"\0"),
        (b"\0\1\0\0", TWO * 2), (b"\0\1\0\1", TWO * 2), (b"\x0f\xff", TWO), (b"\xff\xff", TWO),
        (b"\0\0\x0f\xff", TWO * 2),
    ):  # fmt: skip
        _send(v, block(slots=slots, deltas=deltas))


@refusals.vector("ARGS: headers", "Required with TRACK, not allowed without it.")
def _(v: Vector) -> None:
    _some(v)
    _send(v, block(head=header()))
    _send(v, block(flags=b"\4", head=header()))
    for head in (b"", b"\0", b"\0\1", b"\0\1\1", b"\0\1\1t", header()[:-1], b"\0\1\x09tb"):
        _send(v, tracked(head=head))
    for slots in (0, 2, 4095, 4096, 65535):
        _send(v, tracked(head=header(slots)))
    _send(v, tracked(deltas=b""))
    _send(v, tracked(slots=b"\0\0"))


@refusals.vector(
    "ARGS: present",
    "A bitmap with a bit for each slot, one of them set, and the bits after the last slot clear. "
    "The deltas of absent slots are 0. Only with TRACK.",
)
def _(v: Vector) -> None:
    _some(v)
    _send(v, block(present=b"\x80"))
    _send(v, block(flags=b"\4", present=b"\x80"))
    for slots, present in (
        (1, b"\0"), (1, b"\x40"), (1, b"\xc0"), (1, b"\x81"), (1, b"\x80\0"), (1, b"\x80\x80"),
        (9, b"\x80"), (9, b"\0\0"), (9, b"\x80\0\0"), (9, b"\x80\x40"), (9, b"\x80\x01"),
    ):  # fmt: skip
        deltas = TWO + bytes(8 * slots - 8)
        _send(v, tracked(head=header(slots), present=present, deltas=deltas))
    for at in (1, 7, 8, 15):  # the delta of an absent slot
        deltas = TWO + bytes(8 * at - 8) + TWO + bytes(8 * (15 - at))
        _send(v, tracked(head=header(16), present=b"\x80\0", deltas=deltas))
    most = header(4095), b"\x80" + bytes(511), TWO + bytes(8 * 4094)
    many = tracked(head=most[0], present=most[1], deltas=most[2])
    _send(v, many, block(slots=b"\0\0\0\1\0\2", deltas=TWO * 3))  # 4094 and 3 named slots


@refusals.vector("ARGS: tasks and labels", "1 to 64 of A-Z a-z 0-9 _ . -; 1 to 255 bytes.")
def _(v: Vector) -> None:
    _some(v)
    for task in (b"", b"x" * 65, b"a b", b"a:b", "\u00fc".encode(), b"a\n", b"a\0"):
        _send(v, tracked(head=header(task=task)))
    for label in (b"", b"x" * 256):
        _send(v, tracked(head=header(label=label)))


@refusals.vector("ARGS: failures", "Slot, length, why; slots ascend up to 4094.")
def _(v: Vector) -> None:
    _some(v)
    for failed in (
        b"\0", b"\0\1", b"\0\1\1", b"\0\1\2n", failure(1) + b"\0", failure(1) + b"\0\2\1",
        failure(1) + failure(0), failure(1) + failure(1), failure(4095), failure(65535),
    ):  # fmt: skip
        _send(v, block(failed=failed))
        _send(v, tracked(failed=failed))


for _name, _bad in BAD_TEXTS.items():

    def _declare(name: str, bad: tuple[bytes, ...]) -> None:
        @refusals.vector(f"ARGS: {name}", "They would make the stream unreadable.")
        def _(v: Vector) -> None:
            _some(v)
            for text in bad:
                _send(v, tracked(head=header(label=b"a" + text + b"z")))
                _send(v, block(failed=failure(0, b"a" + text + b"z")))

    _declare(_name, _bad)


@refusals.vector("ARGS: a letter split over two whys", "Each why must be valid UTF-8.")
def _(v: Vector) -> None:
    _some(v)
    _send(v, block(failed=failure(0, b"no \xc3") + failure(1, b"\xa9")))


@refusals.vector("ARGS: the last block", "A call is all or nothing: its last block is invalid.")
def _(v: Vector) -> None:
    _some(v)
    _send(v, block(), tracked(), block(number=TWO, flags=b"\2"), producer="p", fence="6")


@refusals.vector("ARGS: 65 blocks", "One too many.")
def _(v: Vector) -> None:
    _some(v)
    _send(v, *(block(number=n.to_bytes(8, "big")) for n in range(65)))


@refusals.vector(
    "ARGS: 4097 named slots",
    "4095 failures of one block, without a why; a delta and a failure of another.",
)
def _(v: Vector) -> None:
    _some(v)
    most = b"".join(failure(slot, b"") for slot in range(4095))
    first = block(number=TWO, slots=b"", deltas=b"", failed=most)
    _send(v, first, block(number=OTHER, slots=b"\0\0", failed=failure(0)))


@refusals.vector("ARGS: fences", "<seq> or <seq>:<digest>, and only with a producer.")
def _(v: Vector) -> None:
    _some(v)
    _send(v, block(), fence="6")
    _send(v, block(), producer="x" * 129, fence="6")
    for fence in (
        "", "0", "-1", "06", "1.5", "1e3", "6 ", "6\n", "6:", ":aa", "6:g", "6:aa:", "1" * 16,
        "6:" + "a" * 33,
    ):  # fmt: skip
        _send(v, block(), producer="p", fence=fence)


@refusals.vector(
    "ARGS: keys", "KEYS[1] is acker:{<namespace>:<shard>}, KEYS[2] the same and :meta."
)
def _(v: Vector) -> None:
    _some(v)
    good: dict[str, tuple[str | bytes, ...]] = {
        "apply_blocks": ("", "", *block()),
        "expire_blocks": ("16",),
        "show": (NUMBER,),
    }
    for script, args in good.items():
        for keys in (
            (PREFIX,), (PREFIX, "acker:{other:0}:meta"), (PREFIX, PREFIX + ":meta", PREFIX),
        ):  # fmt: skip
            v.raw(script, *args, keys=keys, error="ARGS")


@refusals.vector("ARGS: expire_blocks and show", "Their single argument is invalid.")
def _(v: Vector) -> None:
    _some(v)
    for blocks in ((), ("",), ("0",), ("101",), ("1e1",), ("-1",), ("010",), ("16", "16")):
        v.raw("expire_blocks", *blocks, error="ARGS")
    for anchor in (
        b"", NUMBER[1:], NUMBER + b"\0", bytes(8), b"\xff" * 8,
        (BIT | 4095).to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big"), (2**63).to_bytes(8, "big"),
    ):  # fmt: skip
        v.raw("show", anchor, error="ARGS")
    v.raw("show", error="ARGS")
    v.raw("show", NUMBER, NUMBER, error="ARGS")


@refusals.vector("SHARD", "Block 7 belongs to shard 3 of 4, and was sent to shard 2.", shards=4)
def _(v: Vector) -> None:
    v.apply(track_block(6, "b6", A), task="t")
    _send(v, block(), shard=2, error="SHARD")
    _send(v, block(number=(6).to_bytes(8, "big")), block(), shard=2, error="SHARD")
    for anchor in (7, BIT | 7 << 12, BIT | 5 << 12 | 6):
        v.raw("show", anchor.to_bytes(8, "big"), shard=2, error="SHARD")


@refusals.vector("NAMESPACE", "It was not created.", created=False)
def _(v: Vector) -> None:
    _send(v, block(), error="NAMESPACE")
    v.raw("expire_blocks", 16, error="NAMESPACE")
    v.raw("show", NUMBER, error="NAMESPACE")


@refusals.vector(
    "SCHEMA", "Another version wrote the namespace. A plain HSET simulates that, and undoes it."
)
def _(v: Vector) -> None:
    _some(v)
    v.redis("HSET", PREFIX + ":meta", "schema", "1")
    _send(v, block(), error="SCHEMA")
    v.raw("expire_blocks", 16, error="SCHEMA")
    v.raw("show", NUMBER, error="SCHEMA")
    v.redis("HSET", PREFIX + ":meta", "schema", "2")


@refusals.vector(
    "SCHEMA: checksums that are lost",
    "The string of block 7 was deleted or cut short: calls with this block are refused, others are "
    "applied. The string is restored at the end, as ASCII letters.",
)
def _(v: Vector) -> None:
    v.apply(track_block(7, "b7", B, B), track_block(8, "b8", A), task="t")
    key = f"{PREFIX}:block:{7:013x}"
    v.redis("DEL", key)
    _send(v, block(), error="SCHEMA")
    _send(v, block(number=(8).to_bytes(8, "big")), block(), error="SCHEMA")
    v.redis("SET", key, "ABCDEFGH")
    _send(v, block(), error="SCHEMA")
    v.blocks(pack_deltas(8, {0: A}))
    v.redis("SET", key, "ABCDEFGHABCDEFGH")


@refusals.vector(
    "SCHEMA: the stream or its backlog",
    "The verdicts of apply_blocks and expire_blocks could not be written.",
)
def _(v: Vector) -> None:
    _some(v)
    v.tick(2)
    stream, meta = PREFIX + ":outcomes:t", PREFIX + ":meta"
    v.redis("SET", stream, "x")
    _send(v, block(), error="SCHEMA")
    _send(v, tracked(), error="SCHEMA")
    v.redis("DEL", stream)
    v.rotate()
    v.redis("SET", stream, "x")
    v.raw("expire_blocks", 16, error="SCHEMA")
    v.redis("DEL", stream)
    v.redis("HSET", meta, "backlog:t", "x")
    _send(v, tracked(), error="SCHEMA")
    v.raw("expire_blocks", 16, error="SCHEMA")
    v.redis("HSET", meta, "backlog:t", "0")
    v.expire_blocks()


@refusals.vector("CONFLICT", "A block with other content; see blocks_fences.json for more.")
def _(v: Vector) -> None:
    _some(v)
    v.apply(track_block(7, "b7", A), task="t")


@refusals.vector("BACKLOG", "Verdicts wait; see blocks_admission.json for more.", outcomes_limit=1)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track_block(7, "b7", A), task="t", producer="p", seq=1)


@refusals.vector(
    "FENCE",
    "The buckets hold 100,000 fences (written by a plain EVAL): a new lane is refused, a known one "
    "continues, and a durable lane is accepted.",
)
def _(v: Vector) -> None:
    _some(v)
    v.redis("EVAL", FILL, "1", PREFIX + ":fence:1", "lane-")
    _send(v, block(), producer="new", fence="1", error="FENCE")
    v.apply(ack(BIT | 7 << 12, A), producer="p", seq=6)
    v.apply(ack(BIT | 7 << 12, B), producer="@new", seq=1)
    v.redis("DEL", PREFIX + ":fence:1")
    v.apply(ack(BIT | 7 << 12, B), producer="new", seq=1)
