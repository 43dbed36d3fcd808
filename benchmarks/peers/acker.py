"""acker-redis: rows one by one, rows in batches, or blocks. The source takes its verdicts.

It carries no messages. A lost message gets a nack with the source's id and the edge.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
import redis
from by_hand import Trees, trees_of
from program import MESSAGES, Seen, begin_counting, commands, main, watch

from acker_redis import Acker, AckerConfig, Batch, ColumnBatch, Rotator

SOURCE, ROWS, SLOTS = "shop", 1000, 4000
"""``SLOTS`` is the number of trees of a block."""
HUGE = 10**9


def groups(trees: Trees, size: int) -> Iterator[Trees]:
    """Cut the trees into groups."""
    for first in range(0, len(trees), size):
        yield trees[first : first + size]


def taken(acker: Acker) -> int:
    """Read and take the verdicts that wait; return how many trees were acked."""
    outcomes = acker.outcomes(SOURCE)
    entries = outcomes.read()
    return outcomes.take(entries) if entries else 0


def one_by_one(acker: Acker, trees: Trees) -> int:
    """One call a message, each after the last reply; verdicts are read every ten trees."""
    done = 0
    for number, (tree, messages) in enumerate(trees, start=1):
        batch = Batch(SOURCE)
        batch.track(tree, f"order-{number}", messages)
        acker.apply(batch)
        for message in messages:
            batch = Batch(SOURCE)
            batch.ack(tree, message)
            acker.apply(batch)
        if number % 10 == 0 or number == len(trees):
            while more := taken(acker):
                done += more
    return done


def in_batches(acker: Acker, trees: Trees) -> int:
    """A thousand rows a call."""
    done, number = 0, itertools.count(1)
    for group in groups(trees, ROWS):
        batch = Batch(SOURCE)
        for tree, messages in group:
            batch.track(tree, f"order-{next(number)}", messages)
        acker.apply(batch)
        for each in range(MESSAGES):
            batch = Batch()
            for tree, messages in group:
                batch.ack(tree, messages[each])
            acker.apply(batch)
        while more := taken(acker):
            done += more
    return done


def in_blocks(acker: Acker, trees: Trees) -> int:
    """Numbered records: 4000 trees a block, and a column of deltas a call."""
    done = 0
    columns = np.array([messages for _, messages in trees], dtype=np.int64)
    for first in range(0, len(columns), SLOTS):
        group = columns[first : first + SLOTS]
        deltas = np.bitwise_xor.reduce(group, axis=1)
        anchors = np.array(acker.track_block(SOURCE, f"orders/{first}", deltas), dtype=np.int64)
        for each in range(MESSAGES):
            acker.apply(ColumnBatch(anchors, group[:, each]))
        while more := taken(acker):
            done += more
    return done


def speed_of(way: Callable[[Acker, Trees], int], url: str, count: int) -> dict[str, float]:
    """Complete trees in one way, on an empty server."""
    client = redis.Redis.from_url(url)
    client.flushall()
    trees = trees_of(count)
    with created(url) as acker:
        begin_counting(client)
        began = time.perf_counter()
        done = way(acker, trees)
        seconds = time.perf_counter() - began
    if done != count:
        sys.exit(f"{done} of {count} trees are complete")
    return {"seconds": seconds, **commands(client)}


def created(url: str) -> Acker:
    """Return a client of a namespace without limits."""
    acker = Acker.from_url(url, "peers", timeout=60)
    acker.create(AckerConfig(high_water=HUGE, outcomes_limit=HUGE, tick_ms=3_600_000))
    return acker


def pending(url: str, count: int) -> None:
    """Track trees, as rows."""
    with created(url) as acker:
        number = itertools.count(1)
        for group in groups(trees_of(count), ROWS):
            batch = Batch(SOURCE)
            for tree, messages in group:
                batch.track(tree, f"order-{next(number)}", messages)
            acker.apply(batch)


def pending_blocks(url: str, count: int) -> None:
    """Track trees, in blocks."""
    with created(url) as acker:
        for label, group in enumerate(groups(trees_of(count), SLOTS)):
            firsts = [reduce(xor, messages) for _, messages in group]
            acker.track_block(SOURCE, f"orders/{label}", firsts)


def lose(url: str, wait: int) -> dict[str, Any]:
    """Lose one of five messages; a tree expires after two to three ticks of a second."""
    with Acker.from_url(url, "peers") as acker:
        acker.create(AckerConfig(tick_ms=1000, buckets=3, edges=("orders", "parcels")))
        ids = acker.ids
        batch, anchor = Batch(SOURCE), 10**12
        messages = [each | ids.code("parcels") for each in ids.draw(MESSAGES)]
        batch.track(anchor, "order-7", messages)
        for message in messages[1:]:
            batch.ack(anchor, message)
        acker.apply(batch)

        def ask(_: int) -> Seen:
            for outcome in acker.outcomes(SOURCE):
                edges = ", ".join(outcome.edges)
                return "name", f"{outcome.source_id} {outcome.reason}: no ack on edge {edges}"
            return None

        with Rotator([acker]):
            return watch(redis.Redis.from_url(url), {"dropped": 0}, wait, ask)


if __name__ == "__main__":
    main(
        {
            "speed": lambda url, count: speed_of(one_by_one, url, count),
            "speed_batches": lambda url, count: speed_of(in_batches, url, count),
            "speed_blocks": lambda url, count: speed_of(in_blocks, url, count),
            "pending": pending,
            "pending_blocks": pending_blocks,
            "lose": lose,
        }
    )
