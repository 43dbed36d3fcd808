"""Vectors of invalid input, and of states in which valid input is refused."""

from tests.vectors.operations import SALT, ack, track
from tests.vectors.record import Topic, Vector

scripts = Topic(
    "refusals",
    "Calls that the scripts refuse: an error code, and nothing was changed. A correct client does "
    "not send the calls with 'do': null; a runner sends them as they are.",
)
TOPICS = [scripts]
A, B = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B
ONE = (1).to_bytes(8, "big")
TWO = (2).to_bytes(8, "big")
ZERO = bytes(8)


def _apply(
    v: Vector, *, flags: bytes = b"\0", anchors: bytes = ONE, deltas: bytes = TWO,
    task: str | bytes = "", texts: tuple[str | bytes, ...] = (), producer: str = "",
    fence: str = "", error: str = "ARGS", shard: int = 0,
) -> None:  # fmt: skip
    args = (producer, fence, flags, anchors, deltas, task, *texts)
    v.raw("apply", *args, error=error, shard=shard)


def _some(v: Vector) -> None:
    """Create a state that an invalid batch could damage."""
    v.apply(track(1, "s1", A), task="t", producer="p", seq=5, digest="aa")


@scripts.vector("ARGS: rows", "Invalid rows: too few bytes, ids out of range, a duplicate.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, flags=b"", anchors=b"", deltas=b"")
    _apply(v, anchors=ONE[:7])
    _apply(v, deltas=TWO + b"\0")
    _apply(v, flags=b"\0\0")
    _apply(v, flags=b"\x08")
    _apply(v, flags=b"\xff")
    _apply(v, anchors=ZERO)
    _apply(v, anchors=(2**62).to_bytes(8, "big"))
    _apply(v, anchors=b"\xff" * 8)
    _apply(v, deltas=(2**63).to_bytes(8, "big"))
    _apply(v, deltas=b"\xff" * 8)
    _apply(v, flags=b"\0\0\0", anchors=ONE + TWO + ONE, deltas=TWO * 3)


@scripts.vector("ARGS: the last row", "A batch is all or nothing: its last row is invalid.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, flags=b"\0\0", anchors=ONE + ZERO, deltas=TWO * 2, producer="p", fence="6")


@scripts.vector("ARGS: task", "With TRACK rows 1 to 64 of A-Z a-z 0-9 _ . -, without them empty.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, task="t")
    _apply(v, flags=b"\1", anchors=TWO, texts=("s",))
    for task in ("x" * 65, "a b", "a:b", "\u00fc", "a\n", b"a\0"):
        _apply(v, flags=b"\1", anchors=TWO, task=task, texts=("s",))


@scripts.vector("ARGS: texts", "One for each TRACK and each FAIL; UTF-8 without control bytes.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, texts=("s",))
    _apply(v, flags=b"\1", task="t")
    _apply(v, flags=b"\2")
    _apply(v, flags=b"\3", task="t", texts=("s",))
    _apply(v, flags=b"\1", task="t", texts=("",))
    _apply(v, flags=b"\1", task="t", texts=("x" * 256,))
    _apply(v, flags=b"\2", texts=("x" * 256,))


BAD_TEXTS = {
    "control bytes": (b"\0", b"\x01", b"\n", b"\x1f", b"\x7f"),
    "bytes that UTF-8 does not use": (b"\x80", b"\xff", b"\xf5\x80\x80\x80"),
    "overlong forms": (b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf"),
    "surrogates": (b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"),
    "above U+10FFFF": (b"\xf4\x90\x80\x80",),
    "cut short": (b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98"),
    "a byte too many": (b"\xc3\xa9\xa9",),
}

for _name, _bad in BAD_TEXTS.items():

    def _declare(name: str, bad: tuple[bytes, ...]) -> None:
        @scripts.vector(f"ARGS: {name}", "They would make the stream unreadable.")
        def _(v: Vector) -> None:
            _some(v)
            for text in bad:
                _apply(v, flags=b"\1", anchors=TWO, task="t", texts=(b"a" + text + b"z",))
                _apply(v, flags=b"\2", anchors=TWO, texts=(b"a" + text + b"z",))

    _declare(_name, _bad)


@scripts.vector("ARGS: a letter split over two texts", "Each text must be valid UTF-8.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, flags=b"\3", anchors=TWO, task="t", texts=(b"s\xc3", b"\xa9why"))


@scripts.vector("ARGS: fences", "<seq> or <seq>:<digest>, and only with a producer.")
def _(v: Vector) -> None:
    _some(v)
    _apply(v, fence="6")
    _apply(v, producer="x" * 129, fence="6")
    for fence in (
        "", "0", "-1", "+6", "06", "1.5", "1e3", "inf", "nan", "0x10", " 6", "6 ", "6\n",
        "6:", ":aa", "6:g", "6:aa:", "6:aa ", "1" * 16, "9007199254740993", "6:" + "a" * 33,
    ):  # fmt: skip
        _apply(v, producer="p", fence=fence)


@scripts.vector("ARGS: keys", "KEYS[1] is acker:{<namespace>:<shard>}, KEYS[2] the same and :meta.")
def _(v: Vector) -> None:
    _some(v)
    good: dict[str, tuple[str | bytes | int, ...]] = {
        "apply": ("", "", b"\0", ONE, TWO, ""),
        "rotate": ("1",),
        "expire": ("10",),
        "take": ("t", "1-0"),
        "status": (),
    }
    one, meta = "acker:{vector:0}", "acker:{vector:0}:meta"
    for script, args in good.items():
        for keys in ((one,), (one, "acker:{other:0}:meta"), (one, meta, meta)):
            v.raw(script, *args, keys=keys, error="ARGS")


@scripts.vector("ARGS: the other scripts", "Their arguments are invalid.")
def _(v: Vector) -> None:
    _some(v)
    v.raw("apply", "", "", b"\0", ONE, TWO, error="ARGS")
    for force in ((), ("2",), ("yes",), ("1", "1")):
        v.raw("rotate", *force, error="ARGS")
    for records in ((), ("0",), ("1001",), ("1e2",), ("-1",), ("010",)):
        v.raw("expire", *records, error="ARGS")
    for ids in (("t",), ("", "1-0"), ("a b", "1-0"), ("t", "-"), ("t", "1"), ("t", "(1-0"),
                ("t", "1-0", "x-0"), ("t", "9" * 16 + "-0"), ("t", *["1-0"] * 65)):  # fmt: skip
        v.raw("take", *ids, error="ARGS")
    v.raw("status", "x", error="ARGS")


@scripts.vector("ARGS: create", "Fields of the configuration out of range.", created=False)
def _(v: Vector) -> None:
    good = {
        "schema": "2", "shard": "0", "shards": "4", "buckets": "3", "tick_ms": "30000",
        "high_water": "100000", "refresh": "never", "deadline_ms": "0",
        "outcomes_limit": "1000000", "publish": "yes", "edges": "", "salt": SALT,
    }  # fmt: skip
    for field, values in {
        "shard": ("", "4", "1", "-1"),
        "shards": ("0", "3", "2048", "04", "four"),
        "buckets": ("0", "1", "17", "3.0", ""),
        "tick_ms": ("0", "1000000000001", "1e3"),
        "high_water": ("0", "-1", "1000000000001"),
        "refresh": ("", "always", "Never"),
        "outcomes_limit": ("0", "1000000000001"),
        "publish": ("", "1", "true"),
        "deadline_ms": ("", "1", "90000", "-1", "0x0"),
        "edges": (
            ",",
            "a,",
            "a,,b",
            "a,a",
            "a b",
            "a,b,c,d,e,f,g,h,i",
            "x" * 65,
            "\u00e4",
        ),
        "salt": ("", SALT[1:], SALT + "0", "A" * 32),
    }.items():
        for value in values:
            v.raw("create", *(good | {field: value}).values(), error="ARGS")
    v.raw("create", *list(good.values())[:-1], error="ARGS")
    update = good | {"refresh": "update"}
    for deadline in ("0", "89999", "1000000000001"):
        v.raw("create", *(update | {"deadline_ms": deadline}).values(), error="ARGS")


@scripts.vector("SHARD", "Anchor 7 belongs to shard 3 of 4, and was sent to shard 2.", shards=4)
def _(v: Vector) -> None:
    v.apply(track(6, "s6", A), task="t")
    _apply(v, anchors=(7).to_bytes(8, "big"), shard=2, error="SHARD")
    both = (6).to_bytes(8, "big") + (7).to_bytes(8, "big")
    _apply(v, flags=b"\0\0", anchors=both, deltas=TWO * 2, shard=2, error="SHARD")


@scripts.vector("NAMESPACE", "It was not created.", created=False)
def _(v: Vector) -> None:
    _apply(v, error="NAMESPACE")
    v.raw("rotate", 0, error="NAMESPACE")
    v.raw("expire", 10, error="NAMESPACE")
    v.raw("take", "t", "1-0", error="NAMESPACE")
    v.raw("status", error="NAMESPACE")


@scripts.vector(
    "SCHEMA", "Another version wrote the namespace. A plain HSET simulates that, and undoes it."
)
def _(v: Vector) -> None:
    _some(v)
    v.redis("HSET", "acker:{vector:0}:meta", "schema", "1")
    _apply(v, error="SCHEMA")
    v.raw("rotate", 1, error="SCHEMA")
    v.raw("expire", 10, error="SCHEMA")
    v.raw("take", "t", "1-0", error="SCHEMA")
    v.raw("status", error="SCHEMA")
    v.raw("create", *_created(schema="1"), error="SCHEMA")
    v.redis("HSET", "acker:{vector:0}:meta", "schema", "2")
    v.create()


@scripts.vector("EXISTS", "Created again: idempotent with the same configuration, else an error.")
def _(v: Vector) -> None:
    v.create()
    for field, value in {
        "buckets": "4", "high_water": "1", "publish": "no", "edges": "a,b",
    }.items():  # fmt: skip
        v.raw("create", *_created(**{field: value}), error="EXISTS")
    # Each creator draws a salt, and the first one stays.
    v.raw("create", *_created(salt="f" * 32), reply=[0, SALT])


@scripts.vector("CONFLICT", "The same number with other content; see fences.json for more.")
def _(v: Vector) -> None:
    _some(v)
    v.apply(ack(1, A), producer="p", seq=5, digest="bb")


@scripts.vector("BACKLOG", "Verdicts wait; see admission.json for more.", outcomes_limit=1)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2", A), ack(3, A), task="t", producer="p", seq=1)


@scripts.vector(
    "RESHARD",
    "A tree is pending: the shard can be closed, but not switched. During a reshard its settings "
    "cannot change, and no other reshard can begin. See admission.json for a closed shard.",
)
def _(v: Vector) -> None:
    _some(v)
    v.raw("configure", "shards", "4", error="RESHARD")
    v.raw("configure", "reshard", "1:4:switch", error="RESHARD")
    v.raw("configure", "reshard", "2:4", error="RESHARD")
    v.reshard("1:4")
    v.raw("configure", "reshard", "1:4", reply=0)
    v.raw("configure", "reshard", "1:8", error="RESHARD")
    v.raw("configure", "reshard", "1:4:switch", error="RESHARD")
    v.raw("configure", "high_water", "7", error="RESHARD")
    v.raw("configure", "slo_target", "99.9", error="RESHARD")
    v.raw("configure", "reshard", "", error="RESHARD")
    v.reshard("1:4:cancel")
    v.reshard("")
    v.raw("configure", "reshard", "", reply=0)


@scripts.vector("ARGS: configure", "Unknown fields, and invalid values.")
def _(v: Vector) -> None:
    for changes in (
        (), ("high_water",), ("high_water", "0"), ("high_water", "1", "high_water", "2"),
        ("tick_ms", "1.5"), ("buckets", "4"), ("shards", "3"), ("reshard", "1:1"),
        ("reshard", "1:4", "tick_ms", "5"), ("reshard", "1:4:now"), ("lane:@q", "0:1"),
        ("slo_target", "100"), ("slo_target", "99.90"), ("slo_ms", "-1"),
    ):  # fmt: skip
        v.raw("configure", *changes, error="ARGS")


FILL = "for i = 1, 100000 do redis.call('HSET', KEYS[1], ARGV[1] .. i, '1:') end"


@scripts.vector(
    "FENCE",
    "The buckets hold 100,000 fences (written by a plain EVAL): a new lane is refused, a known one "
    "continues, and a durable lane is accepted.",
)
def _(v: Vector) -> None:
    _some(v)
    v.redis("EVAL", FILL, "1", "acker:{vector:0}:fence:1", "lane-")
    _apply(v, producer="new", fence="1", error="FENCE")
    v.apply(ack(1, B), producer="p", seq=6)
    v.apply(ack(1, B), producer="@new", seq=1)
    v.redis("DEL", "acker:{vector:0}:fence:1")
    v.apply(ack(1, B), producer="new", seq=1)


def _created(**changed: str) -> list[str]:
    """Return the arguments of create, with the defaults of the vectors."""
    fields = {
        "schema": "2", "shard": "0", "shards": "1", "buckets": "3", "tick_ms": "3600000",
        "high_water": "100000", "refresh": "never", "deadline_ms": "0",
        "outcomes_limit": "1000000", "publish": "yes", "edges": "", "salt": SALT,
    }  # fmt: skip
    return list((fields | changed).values())
