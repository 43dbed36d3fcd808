"""One Spark session for all tests, and shared helpers. Without Java the tests skip, or fail on CI.

A *term* is (kind, anchor, delta, text), as in ``fold/terms.py``. The tests make terms, cut them
into partitions, and decode from the calls the meaning for each anchor.
"""

import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from acker_redis.batching.sent import Part
from acker_redis.protocol.blocks import unpack_column
from acker_redis.protocol.ids import ANCHOR_MAX, block_anchor
from acker_redis.protocol.rows import FAIL, TOUCH, TRACK, Columns
from acker_redis.protocol.slots import unpack_slots
from acker_redis.spark.fold.content import Content, Sealed
from acker_redis.spark.fold.terms import Kind, Packed, Packer
from acker_redis.sync.client import Acker as Client
from tests.conftest import MakeAcker, missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acker_redis.spark import Acker


Term = tuple[Kind, int, int, str]
Outcome = tuple[str, str, str, str]
"""verdict, reason, source id, why"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Start a local session."""
    from acker_flights import session

    advice = session.missing_java()
    if advice:
        missing(advice)
    with session.started(tmp_path_factory.mktemp("spark")) as running:
        # With so few rows, compiling a plan takes longer than running it.
        running.conf.set("spark.sql.codegen.wholeStage", "false")
        running.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield running


def url_of(client: Client) -> str:
    """Return the URL of a client's server."""
    found = client.connection.client.connection_pool.connection_kwargs
    return f"redis://{found['host']}:{found['port']}"


MakeSparkAcker = Callable[..., "Acker"]


@pytest.fixture
def make_spark_acker(spark: "SparkSession", make_any_acker: MakeAcker) -> Iterator[MakeSparkAcker]:
    """Return a function that makes ackers; ``config`` has fields of AckerConfig.

    Each acker gets a new namespace, unless ``client=`` gives the client of another acker.
    """
    from acker_redis.spark import Acker
    from acker_redis.spark.fold import target as targets

    def make(
        config: Mapping[str, Any] | None = None, client: Client | None = None, **more: Any
    ) -> Acker:
        plain = client or make_any_acker(**(config or {}))
        settings: dict[str, Any] = {"app_id": "test", "mode": "driver", "query_id": "q"}
        settings |= {"max_wait": 0.0, "timeout": 60.0, **more}
        return Acker(spark, plain.namespace, url=url_of(plain), **settings)

    yield make
    for client in targets._clients.values():
        client.close()
    targets._clients.clear()


@pytest.fixture
def by_driver(make_spark_acker: MakeSparkAcker) -> "Acker":
    """Return an acker that folds in the driver, with one shard."""
    return make_spark_acker()


def change(acker: "Acker", **settings: Any) -> None:
    """Change settings of an existing acker."""
    acker.shared.application = replace(acker.application, **settings)


# Terms, and the meaning of calls.


def packed(
    terms: Iterable[Term], shards: int, chance: random.Random | None = None, partitions: int = 1
) -> list[Packed]:
    """Pack terms in partitions; ``chance`` decides partition, order and batch of each term."""
    chance = chance or random.Random(0)
    dealt: list[list[Term]] = [[] for _ in range(partitions)]
    for term in terms:
        chance.choice(dealt).append(term)
    rows = []
    for mine in dealt:
        packer = Packer(shards)
        chance.shuffle(mine)
        while mine:
            size = chance.randint(1, len(mine))
            some, mine = mine[:size], mine[size:]
            for kind, loose in product(Kind, (True, False)):
                mixed = [term for term in some if term[0] is kind]
                rows += add(packer, kind, [t for t in mixed if (t[1] <= ANCHOR_MAX) is loose])
        rows += packer.finish()
    chance.shuffle(rows)
    return rows


def add(packer: Packer, kind: Kind, terms: Sequence[Term]) -> list[Packed]:
    """Add terms of one kind to a packer, with the columns of that kind."""
    anchors = np.array([anchor for _, anchor, _, _ in terms], dtype=np.int64)
    deltas = np.array([delta for _, _, delta, _ in terms], dtype=np.int64)
    named = kind is Kind.FAIL or (kind is Kind.TRACK and (anchors <= ANCHOR_MAX).any())
    return list(
        packer.add(
            kind,
            anchors,
            None if kind in (Kind.FAIL, Kind.TOUCH) else deltas,
            pa.array([text for *_, text in terms], pa.string()) if named else None,
        )
    )


def seal(rows: Iterable[Packed], shards: int, **more: Any) -> dict[int, Sealed]:
    """Seal the content of each shard that has packed rows; their order is free."""
    contents: dict[int, Content] = {}
    for row in rows:
        if row.shard not in contents:
            contents[row.shard] = Content(row.shard, shards, **more)
        contents[row.shard].add(row)
    return {shard: contents[shard].seal() for shard in sorted(contents)}


def sealed(terms: Iterable[Term], shards: int = 1, **more: Any) -> dict[int, Sealed]:
    """Seal the content of terms in one partition."""
    return seal(packed(terms, shards), shards, **more)


@dataclass
class Said:
    """The meaning of a batch for each anchor; without deltas of 0, except of tracked trees."""

    deltas: dict[int, int] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    """Anchors, and numbers of blocks."""
    tracked: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Loose trees: delta and source id."""
    blocks: dict[int, tuple[str, dict[int, int]]] = field(default_factory=dict)
    """Label, and the delta of each present slot."""


def said(parts: Iterable[Part], task: str = "") -> Said:
    """Return the meaning of parts; the row of an anchor must be in one part only."""
    found = Said()
    for part in parts:
        if isinstance(part.rows, Columns):
            _columns(found, part.rows, task)
            continue
        for each in part.rows.parts:
            if each.flags & TOUCH:
                found.touched.add(each.block)
            for slot, why in failures(each.failed):
                anchor = block_anchor(each.block, slot)
                assert anchor not in found.failed
                found.failed[anchor] = why
            deltas = unpack_column(each.slots, each.deltas)
            if each.flags & TRACK:
                length = each.header[2]
                assert each.header[3 : 3 + length].decode() == task
                slots = int.from_bytes(each.header[:2], "big")
                assert slots == len(each.deltas) // 8
                assert each.block not in found.blocks
                held = unpack_slots(each.present) or range(slots)
                assert deltas.keys() <= set(held)
                column = {slot: deltas.get(slot, 0) for slot in held}
                found.blocks[each.block] = (each.header[3 + length :].decode(), column)
                continue
            for slot, delta in deltas.items():
                anchor = block_anchor(each.block, slot)
                assert anchor not in found.deltas, "a row is in one call"
                found.deltas[anchor] = delta
    return found


def _columns(found: Said, rows: Columns, task: str) -> None:
    tracks = sum(flags & TRACK for flags in rows.flags)
    sources, whys = iter(rows.texts[:tracks]), iter(rows.texts[tracks:])
    deltas = struct.unpack(f">{len(rows)}Q", rows.deltas)
    assert not tracks or rows.task == task
    for row, (flags, delta) in enumerate(zip(rows.flags, deltas, strict=True)):
        anchor = rows.anchor(row)
        if flags & TRACK:
            assert anchor not in found.tracked
            found.tracked[anchor] = (delta, next(sources).decode())
        elif delta:
            assert anchor not in found.deltas, "a row is in one call"
            found.deltas[anchor] = delta
        if flags & FAIL:
            assert anchor not in found.failed
            found.failed[anchor] = next(whys).decode()
        if flags & TOUCH:
            found.touched.add(anchor)
    assert not [*sources, *whys]


def failures(column: bytes) -> Iterator[tuple[int, str]]:
    """Yield the failed slots and their reasons from the column of a block."""
    at = 0
    while at < len(column):
        slot, length = struct.unpack_from(">HB", column, at)
        yield slot, column[at + 3 : at + 3 + length].decode()
        at += 3 + length


def parts_of(found: Mapping[int, Sealed]) -> list[Part]:
    """Return the parts of all shards."""
    return [part for each in found.values() for part in each.parts]


def outcomes(client: Client, task: str = "t") -> list[Outcome]:
    """Take all waiting verdicts, and return one per tree, ordered by source id."""
    from acker_redis.protocol.labels import source_id_of

    waiting, rows = client.outcomes(task), []
    for each in waiting:
        name = each.source_id if each.slot is None else source_id_of(each.source_id, each.anchor)
        rows.append((each.verdict, each.reason, name, each.why))
    return sorted(rows)
