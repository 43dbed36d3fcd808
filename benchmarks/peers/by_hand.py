"""What people write on Redis: the loop around one technique, a call a message or 1000 at a time.

A :class:`Technique` has two commands: one that begins a tree, one that a processed message sends.
None of them carries messages, expires a tree or says which tree is incomplete.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

import redis
from program import MESSAGES, begin_counting, commands, main, watch

BATCH = 1000
"""Calls of a pipeline."""


class Technique(Protocol):
    """One way to know that a tree is complete."""

    def prepare(self, client: Any) -> None:
        """Load scripts, once."""

    def begin(self, client: Any, tree: int, messages: Sequence[int]) -> Any:
        """Send the call that begins a tree, to a client or a pipeline."""

    def processed(self, client: Any, tree: int, message: int) -> Any:
        """Send the call that a processed message makes; at most two commands."""

    def complete(self, reply: Any) -> bool:
        """Return whether this reply of ``processed`` completes the tree."""


Trees = list[tuple[int, list[int]]]


def trees_of(count: int) -> Trees:
    """Return trees and the ids of their messages, 63 bits wide and distinct."""
    return [
        (10**12 + tree, [hash_of(tree * MESSAGES + each) for each in range(MESSAGES)])
        for tree in range(count)
    ]


def hash_of(number: int) -> int:
    """Return a well-mixed id of 63 bits (splitmix64), so that no XOR is zero by accident."""
    mask = 2**64 - 1
    number = (number + 1) * 0x9E3779B97F4A7C15 & mask
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & mask
    number = (number ^ number >> 27) * 0x94D049BB133111EB & mask
    return (number ^ number >> 31) >> 1


def one_by_one(technique: Technique, client: Any, trees: Trees) -> int:
    """Send each call when the reply of the last one is there; return the completed trees."""
    done = 0
    for tree, messages in trees:
        technique.begin(client, tree, messages)
        for message in messages:
            done += technique.complete(technique.processed(client, tree, message))
    return done


def in_batches(technique: Technique, client: Any, trees: Trees) -> int:
    """Send 1000 calls in a pipeline; return the completed trees."""
    done = 0
    for first in range(0, len(trees), BATCH):
        group = trees[first : first + BATCH]
        pipe = client.pipeline(transaction=False)
        for tree, messages in group:
            technique.begin(pipe, tree, messages)
        pipe.execute()
        for number in range(MESSAGES):
            for tree, messages in group:
                technique.processed(pipe, tree, messages[number])
            replies = pipe.execute()
            # If a message sends two commands, the second reply decides.
            each = len(replies) // len(group)
            done += sum(map(technique.complete, replies[each - 1 :: each]))
    return done


def run(technique: Technique) -> None:
    """Run the program of a technique; ``speed`` and ``speed_batches`` are its two ways."""

    def prepared(url: str) -> Any:
        client = redis.Redis.from_url(url)
        technique.prepare(client)
        return client

    def speed_of(way: Any, url: str, count: int) -> dict[str, float]:
        client = prepared(url)
        trees = trees_of(count)
        way(technique, client, trees[:10])
        client.flushall()
        begin_counting(client)
        began = time.perf_counter()
        done = way(technique, client, trees)
        seconds = time.perf_counter() - began
        if done != count:
            sys.exit(f"{done} of {count} trees are complete")
        return {"seconds": seconds, **commands(client)}

    def pending(url: str, count: int) -> None:
        pipe = prepared(url).pipeline(transaction=False)
        for number, (tree, messages) in enumerate(trees_of(count), start=1):
            technique.begin(pipe, tree, messages)
            if number % BATCH == 0 or number == count:
                pipe.execute()

    def lose(url: str, wait: int) -> dict[str, Any]:
        client = prepared(url)
        ((tree, messages),) = trees_of(1)
        technique.begin(client, tree, messages)
        if any(technique.complete(technique.processed(client, tree, m)) for m in messages[1:]):
            sys.exit("the tree is complete without its first message")
        return watch(client, {"dropped": 0}, wait, lambda _: None)

    main(
        {
            "speed": lambda url, count: speed_of(one_by_one, url, count),
            "speed_batches": lambda url, count: speed_of(in_batches, url, count),
            "pending": pending,
            "lose": lose,
        }
    )
