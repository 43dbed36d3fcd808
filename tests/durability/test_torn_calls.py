"""Partially written calls: only the first writes of a call are on disk, and no ack is false.

Redis logs a script's writes as one transaction. When the log ends inside a transaction, Redis
drops it, but leaves its first commands in the file; a new transaction is written after them, and
the next start runs both as one (seen in 6.2 and 7.0). So the order of a script's writes matters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import ServerBinary
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from proof.reference.blocks import BlockRow
from tests.durability.servers import ALWAYS, Kept
from tests.support import FAIL, TOUCH, TRACK, columns, partial_block, send, send_blocks, tick

CONFIG = AckerConfig(tick_ms=3_600_000, publish=False)
BLOCK = 4096
FIRSTS = {0: 11, 1: 22, 2: 33, 3: 44, 4: 55, 5: 66, 7: 0}
Call = Callable[[Acker], object]


def anchor(slot: int) -> int:
    return 1 << 62 | BLOCK << 12 | slot


OPEN = {4, anchor(2), anchor(5)}
"""Trees with a message that is never processed."""
FAILED = {3, anchor(1), anchor(3)}
"""Trees that fail, some in a row that counts the message as processed."""
ABSENT = {anchor(6), anchor(8)}
"""Slots that hold no tree."""


def calls() -> list[Call]:
    """Return calls of a source and two bolts, each under its number, so that it can be retried."""

    def loose(lane: str, seq: int, *rows: tuple[int, int, int], texts: Sequence[str] = ()) -> Call:
        part = columns(rows, "t" if rows[0][2] & TRACK else "", texts)
        return lambda acker: send(acker, part, Fence(lane, seq, "aa"))

    def blocks(lane: str, seq: int, row: BlockRow) -> Call:
        return lambda acker: send_blocks(acker, row, fence=Fence(lane, seq, "aa"))

    tracks = [(tree, 10 * tree ^ 20 * tree, TRACK) for tree in (1, 2, 3, 4)]
    return [
        loose("source", 1, *tracks, texts=["a", "b", "c", "d"]),
        blocks("source", 2, partial_block(BLOCK, 9, FIRSTS, "b")),
        loose("bolt", 1, (1, 10, 0), (2, 20 ^ 5, TOUCH), (4, 40, 0)),
        lambda acker: tick(acker),
        loose("bolt", 2, (1, 20, 0), (3, 30, FAIL), (2, 5, 0), texts=["no"]),
        blocks("@spark", 1, BlockRow(BLOCK, {0: 11, 1: 22}, {1: "no"}, touch=True)),
        loose("other", 1, (3, 60, 0), (2, 40, TOUCH)),
        blocks("@spark", 2, BlockRow(BLOCK, {3: 44, 4: 55 ^ 7}, {3: "no"})),
        lambda acker: tick(acker),
        blocks("@spark", 3, BlockRow(BLOCK, {4: 7, 2: 1})),
        blocks("other", 2, BlockRow(BLOCK, {2: 1})),
    ]


@dataclass
class Logged:
    """The commands that each call wrote to the log."""

    begun: list[list[bytes]]
    """Commands before the first call."""
    calls: list[list[list[bytes]]]


@pytest.fixture
def logged(binary: ServerBinary, directory: Path) -> Logged:
    with Kept(binary, directory, *ALWAYS) as server, Acker.from_url(server.url, "torn") as acker:
        acker.create(CONFIG)
        found, ends = [], [server.log.stat().st_size]
        for call in calls():
            call(acker)
            ends.append(server.log.stat().st_size)
        log = server.log.read_bytes()
    begin = log.find(b"*2\r\n$6\r\nSELECT")
    for first, end in zip([begin, *ends], ends, strict=False):
        found.append(list(parse(log[first:end])))
    return Logged(found[0], found[1:])


def parse(log: bytes) -> Iterator[list[bytes]]:
    """Yield the commands of a log, without MULTI, EXEC and SELECT."""
    at = 0
    while at < len(log):
        words, end = [], log.index(b"\r\n", at)
        count, at = int(log[at + 1 : end]), end + 2
        for _ in range(count):
            end = log.index(b"\r\n", at)
            size = int(log[at + 1 : end])
            words.append(log[end + 2 : end + 2 + size])
            at = end + 2 + size + 2
        if words[0].upper() not in (b"MULTI", b"EXEC", b"SELECT"):
            yield words


def false_acks(acker: Acker) -> set[int]:
    acked = {o.anchor for o in acker.outcomes("t") if o.verdict == "ack"}
    return acked & (OPEN | FAILED | ABSENT)


def test_complete_log_restores_the_expected_verdicts(
    any_server: EmbeddedRedis, logged: Logged
) -> None:
    """With the complete log all trees get their expected verdicts."""
    with Acker.from_url(any_server.url, "torn") as acker:
        restore(acker, [*logged.begun, *(words for call in logged.calls for words in call)])
        tick(acker, 3)
        acked = {o.anchor for o in acker.outcomes("t") if o.verdict == "ack"}
        assert acked == {1, 2, anchor(0), anchor(4), anchor(7)}
    assert max(map(len, logged.calls)) > 8


@pytest.mark.parametrize("sent_again", [False, True], ids=["given up", "sent again"])
def test_partially_written_call_never_acks_falsely(
    any_server: EmbeddedRedis, logged: Logged, sent_again: bool
) -> None:
    wrong: dict[tuple[int, int], set[int]] = {}
    torn = 0
    with Acker.from_url(any_server.url, "torn") as acker:
        for number, written in enumerate(logged.calls):
            before = [words for call in logged.calls[:number] for words in call]
            for half in range(1, len(written)):
                restore(acker, [*logged.begun, *before, *written[:half]])
                for call in calls()[number + (not sent_again) :]:
                    call(acker)
                settle(acker)
                torn += 1
                if found := false_acks(acker):
                    wrong[number, half] = found
    assert torn > 40
    assert wrong == {}


def settle(acker: Acker) -> None:
    """Let all trees expire."""
    for _ in range(6):
        tick(acker)


def restore(acker: Acker, commands: list[list[bytes]]) -> None:
    """Empty Redis and run these commands."""
    pipe = acker.connection.client.pipeline(transaction=False)
    pipe.flushall()
    for words in commands:
        pipe.execute_command(*words)
    # Continue after a command that fails, as a replica and the loader of a log do.
    pipe.execute(raise_on_error=False)
