"""A namespace with trees in every state, whose ids of messages are known, and a search for them."""

import base64
import random
from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from operator import xor

from acker_redis.sync.client import Acker
from tests.support import block_row, fail, fail_slot, row, tick, track, track_block


class World:
    """A namespace with trees in every state, and the ids of their messages."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.draws = random.Random(45)
        self.trees: list[list[int]] = []
        """Of each tree, the ids of which some are outstanding."""

    def ids(self, count: int) -> list[int]:
        """Draw the ids of a tree: on edges, as the clients draw them."""
        ids = [1 << 55 + k % 2 | self.draws.getrandbits(55) for k in range(count)]
        self.trees.append(ids)
        return ids

    def sum(self, count: int) -> int:
        """Return the XOR of the ids of a new tree."""
        return reduce(xor, self.ids(count))

    def expire(self) -> None:
        """Let a loose tree and a block expire, and rows of the former come late."""
        late = self.ids(3)
        track(self.acker, 17, reduce(xor, late), "expired-17")
        track_block(self.acker, 6, [self.sum(1), self.sum(2)], "expired block")
        tick(self.acker, 3)
        row(self.acker, 17, late[0])

    def fill(self) -> None:
        """Leave pending trees, and verdicts of the other kinds."""
        acker = self.acker
        ids = self.ids(4)
        track(acker, 7, reduce(xor, ids[:3]), "open-7")
        row(acker, 7, ids[2] ^ ids[3])
        row(acker, 8, self.sum(2))
        fail(acker, 9, "early", self.sum(1))
        block = [*self.ids(3), self.sum(2)]
        track_block(acker, 5, [block[0], block[1], 0, block[3]], "open block")
        block_row(acker, 5, {0: block[0] ^ block[2]})
        fail_slot(acker, 5, 1, "torn")
        track(acker, 18, self.sum(2), "failed-18")
        fail(acker, 18, "no")
        track(acker, 19, 0, "acked-19")
        for anchor in (20, 21):
            track(acker, anchor, self.sum(2), f"open-{anchor}")

    def needles(self) -> set[str]:
        """Return all ids, and all XORs of ids of one tree, in many forms."""
        return {
            form.lower()
            for ids in self.trees
            for size in range(1, len(ids) + 1)
            for some in combinations(ids, size)
            for form in forms(reduce(xor, some))
        }


def forms(number: int) -> Iterator[str]:
    """Yield parts of a number in each form: enough digits, as a number may be cut or rounded."""
    digits = str(number)
    yield from (digits[:12], f"{digits[0]}.{digits[1:12]}", f"{number:x}"[:12], f"{number:b}"[:48])
    for order in ("big", "little"):
        data = number.to_bytes(8, order)  # type: ignore[arg-type]
        yield from (data.hex()[:12], data.decode("latin-1"), repr(data)[2:-1])
        for shift in range(3):
            text = base64.b64encode(bytes(shift) + data)[-(-8 * shift // 6) : 8 * (shift + 8) // 6]
            yield from (text.decode(), text.decode().translate({43: "-", 47: "_"}))


def leaks(texts: dict[str, str], needles: set[str]) -> set[str]:
    """Return the names of the texts that have an id."""
    return {
        name
        for name, text in texts.items()
        for low in [text.lower()]
        if any(needle in low for needle in needles)
    }
