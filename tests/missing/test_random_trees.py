"""Random trees with dropped messages: verdicts and ``explain`` name those that are missing.

The client makes the ids and the rows (``growing.py``). The reference model, or a server, applies
the rows in any order and expires the trees.
"""

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.missing.explain import Explanation, explain
from acker_redis.protocol import id_maker
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import TUPLE_MAX, split_anchor
from acker_redis.protocol.outcome import Outcome
from acker_redis.protocol.rows import TRACK
from acker_redis.sync.client import Acker
from acker_redis.trees import processing
from acker_redis.trees.message_id import MessageId
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.missing.growing import MAX_MESSAGES, MAX_MISSING, Grower, Tree
from tests.support import outcomes, tick
from tests.tiers import budget

NAMES = tuple("abcdefgh")
TASK = "t"
TREES = 200
"""Trees that share a namespace."""
Shard = BlockReference | RedisShard


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], random.Random]:
    """Let the client draw its ids from a seed; return the function that sets it."""
    chance = random.Random()

    def draw(count: int, mask: int = TUPLE_MAX) -> list[int]:
        return [chance.randrange(1, mask + 1) for _ in range(count)]

    def seed(number: int) -> random.Random:
        chance.seed(number)
        return chance

    monkeypatch.setattr(id_maker, "draw", draw)
    monkeypatch.setattr(processing, "draw_ids", draw)
    monkeypatch.setattr(processing, "new_anchor", lambda: chance.randrange(1, 2**62))
    return seed


def maker_of(chance: random.Random) -> IdMaker:
    edges = NAMES[: chance.choice((0, 1, 2, 4, 8, 8))]
    return IdMaker(edges, f"{chance.getrandbits(128):032x}")


def grown(chance: random.Random, maker: IdMaker, trees: int = TREES) -> Grower:
    """Return about so many trees, a third of them in blocks."""
    grower = Grower(chance, maker)
    while len(grower.trees) < trees:
        if chance.random() < 0.03:
            grower.block(chance.getrandbits(50), chance.randrange(1, 30))
        else:
            grower.group()
    return grower


def apply(shard: Shard, chance: random.Random, rows: Sequence[TreeRow]) -> None:
    """Apply rows in a random order, in batches; but blocks are tracked first."""
    loose = [row for row in rows if not split_anchor(row.anchor)]
    for some in pieces(chance, loose):
        tracks = any(row.flags & TRACK for row in some)
        shard.apply(fold(some), TASK if tracks else "")
    in_blocks = [row for row in rows if split_anchor(row.anchor)]
    for row in fold_blocks([row for row in in_blocks if row.flags & TRACK]):
        absent = frozenset(range(max(row.deltas))) - row.deltas.keys()
        column = dict.fromkeys(absent, 0) | dict(row.deltas)
        label = f"block {row.block}"
        shard.apply_blocks([replace(row, deltas=column, task=TASK, label=label, absent=absent)])
    for some in pieces(chance, [row for row in in_blocks if not row.flags & TRACK]):
        shard.apply_blocks(fold_blocks(some))


def fold(rows: Sequence[TreeRow]) -> list[TreeRow]:
    """Fold rows into one row per anchor, as a client does."""
    folded: dict[int, TreeRow] = {}
    for row in rows:
        old = folded.get(row.anchor, TreeRow(row.anchor, 0))
        source_id = old.source_id or row.source_id
        delta, flags = old.delta ^ row.delta, old.flags | row.flags
        folded[row.anchor] = TreeRow(row.anchor, delta, flags, source_id)
    return list(folded.values())


def fold_blocks(rows: Sequence[TreeRow]) -> list[BlockRow]:
    """Fold rows into one row per block."""
    folded: dict[int, dict[int, int]] = {}
    for row in fold(rows):
        block, slot = split_anchor(row.anchor) or (0, 0)
        folded.setdefault(block, {})[slot] = row.delta
    return [BlockRow(block, deltas) for block, deltas in folded.items()]


def pieces(chance: random.Random, rows: list[TreeRow]) -> Iterator[list[TreeRow]]:
    """Yield the rows in a random order, in pieces of up to 60: a call has up to 64 blocks."""
    chance.shuffle(rows)
    while rows:
        size = chance.choice((1, 20, 60))
        yield rows[:size]
        del rows[:size]


def check_verdicts(trees: dict[int, Tree], told: Sequence[Outcome], names: Sequence[str]) -> None:
    """Check the verdict on each tree."""
    assert sorted(outcome.anchor for outcome in told) == sorted(trees)
    for outcome in told:
        tree = trees[outcome.anchor]
        if not tree.missing:
            assert outcome.reason == "completed", "a needless nack"
            continue
        assert outcome.reason == "expired", "a false ack"
        assert outcome.edges == tree.edges(names), "the edges are wrong"
        if len(tree.missing) == 1:
            assert {outcome.residual} == tree.missing_ids, "the residual is wrong"


def check_explained(tree: Tree, said: Explanation) -> None:
    """Check that the exact set was found; it also counts each message once."""
    assert said.messages == len(tree.messages)
    assert said.found == "found", f"{said} for {len(tree.missing)} missing"
    assert len(set(said.ids)) == len(said.ids)
    assert set(said.ids) == tree.missing_ids, "the wrong messages"


def play(shard: Shard, chance: random.Random, maker: IdMaker, grower: Grower) -> int:
    """Play the rows of these trees and check all verdicts; return how many expired."""
    apply(shard, chance, grower.rows)
    target = shard.acker if isinstance(shard, RedisShard) else shard
    told = outcomes(target)
    tick(target, shard.config.buckets)
    told += outcomes(target)
    check_verdicts(grower.trees, told, shard.config.edges)

    table = [pair for tree in grower.trees.values() for pair in tree.table]
    table += chance.sample(table, len(table) // 4)
    table += [(chance.randrange(1, 2**62), id_) for _, id_ in table[: len(table) // 4]]
    chance.shuffle(table)
    said = explain(told, table, edges=bool(maker.edges))
    assert said.keys() == {a for a, tree in grower.trees.items() if tree.missing}
    for anchor, explanation in said.items():
        check_explained(grower.trees[anchor], explanation)

    # One of the missing messages is in no table.
    unknown = {anchor: chance.choice(sorted(grower.trees[anchor].missing_ids)) for anchor in said}
    rest = [pair for pair in table if unknown.get(pair[0]) != pair[1]]
    for explanation in explain(told, rest, edges=bool(maker.edges)).values():
        assert (explanation.found, explanation.ids) == ("none", ())
    return len(said)


def test_verdicts_and_explain_are_right_for_random_trees(
    seeded: Callable[[int], random.Random],
) -> None:
    played = missing = 0
    sizes = set()
    for seed in range(budget().trees // TREES):
        chance = seeded(seed)
        maker = maker_of(chance)
        grower = grown(chance, maker)
        shard = BlockReference(AckerConfig(edges=maker.edges, tick_ms=3_600_000))
        missing += play(shard, chance, maker, grower)
        played += len(grower.trees)
        sizes |= {(len(t.messages), len(t.missing)) for t in grower.trees.values()}
    assert played >= budget().trees
    assert missing > played / 3
    assert {lost for _, lost in sizes} == set(range(MAX_MISSING + 1))
    assert max(size for size, _ in sizes) > MAX_MESSAGES - 5


def test_verdicts_of_a_server_are_right_for_random_trees(
    server: EmbeddedRedis, seeded: Callable[[int], random.Random]
) -> None:
    for seed in range(3):
        chance = seeded(seed)
        maker = maker_of(chance)
        with Acker.from_url(server.url, f"missing-{uuid.uuid4().hex[:8]}") as acker:
            acker.create(AckerConfig(edges=maker.edges, tick_ms=3_600_000))
            assert play(RedisShard(acker), chance, maker, grown(chance, maker)) > 50


def first_error(
    chance: random.Random, of_the_client: tuple[str, ...], edges: tuple[str, ...]
) -> str:
    """Return how the check fails for a client with other edges than the namespace has."""
    maker = IdMaker(of_the_client, "5a" * 16)
    shard = BlockReference(AckerConfig(edges=edges, tick_ms=3_600_000))
    with pytest.raises(AssertionError) as found:
        play(shard, chance, maker, grown(chance, maker))
    return str(found.value).partition("\n")[0]


def test_code_lost_in_a_join_is_detected(
    monkeypatch: pytest.MonkeyPatch, seeded: Callable[[int], random.Random]
) -> None:
    emit = processing._emit

    def lost(ones: Any, parents: Any, key: Any, maker: IdMaker, edge: str) -> Any:
        return emit(ones, parents, key, maker, edge if len(parents) == 1 else "")

    chance = seeded(1)
    monkeypatch.setattr(processing, "_emit", lost)
    assert first_error(chance, NAMES, NAMES) == "the edges are wrong"


@pytest.mark.parametrize("share", [0, 1])
def test_code_in_no_row_or_in_all_rows_of_a_join_is_detected(
    share: int, monkeypatch: pytest.MonkeyPatch, seeded: Callable[[int], random.Random]
) -> None:
    def wrong(inputs: Sequence[MessageId]) -> list[tuple[int, ...]]:
        return [tuple(message_id) * share for message_id in inputs]

    chance = seeded(1)
    monkeypatch.setattr(processing, "_carriers", wrong)
    # The seed decides whether a tree with or without missing messages comes first.
    assert first_error(chance, NAMES, NAMES) in ("a needless nack", "the edges are wrong")


def test_codes_of_another_configuration_are_detected(
    seeded: Callable[[int], random.Random],
) -> None:
    assert first_error(seeded(1), NAMES, NAMES[::-1]) == "the edges are wrong"


def test_client_that_does_not_know_the_edges_is_detected(
    seeded: Callable[[int], random.Random],
) -> None:
    assert first_error(seeded(1), (), NAMES) == "the edges are wrong"
