"""What a producer may write into the keys of its own namespace: anything."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.sync.client import Acker

VALUES = (
    None,
    "",
    "0",
    "-1",
    "17",
    "300000",
    "9" * 19,
    "9" * 400,
    f"-{'9' * 400}",
    "1e300",
    "nan",
    "four",
    "1:1099511627776",
    "\u0664",
    b"\xff\xfe",
    "x" * 2000,
)
"""Values for any field; None deletes the field."""

MORE_FIELDS = (
    *("backlog:t", "used:t", "ended:t", "good:t", "slots:0", "slots:1", "odd:0", "odd:none"),
    *("latency:3", "latency_ms", "late_ms", "ticks", "slow", "slo_target", "slo_ms", "reshard"),
    *("blocks_cursor", "lanes_cursor", f"backlog:{'n' * 2000}", "backlog:two words", b"\xff"),
)
"""Fields that a new namespace does not have, and two that none has."""


def spoilt(acker: Acker, names: str) -> Iterator[tuple[str, str]]:
    """Copy a namespace, spoil a field of the copy, and list it; each field with every third value.

    Yield the names of the copies, which begin with ``names``, and the damage.
    """
    client = acker.connection.client
    meta: dict[Any, Any] = client.hgetall(ShardKeys(acker.namespace, 0).meta)
    pipe = client.pipeline(transaction=False)
    for number, (field, value) in enumerate(product((*meta, *MORE_FIELDS), VALUES)):
        if number % 3:
            continue
        fields = {**meta, field: value}
        if value is None:
            del fields[field]
        name = f"{names}{number}"
        pipe.hset(ShardKeys(name, 0).meta, mapping=fields)
        pipe.sadd(NAMESPACES, name)
        yield name, f"{field!r:.40}: {value!r:.40}"
    pipe.execute()
