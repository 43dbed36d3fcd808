"""Producers that record their trees, rotators that are killed, and a final count of verdicts."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.waiting import LIMIT, wait_until

TASKS = ("loose", "blocks")
LOOSE, SLOTS = 60, 40
"""Trees per batch, and per block."""
MOST = 1500
"""Maximum number of trees that are pending or wait to be drained, approximately."""
KILLS_WHILE = 10
"""Minimum number of verdicts of a drain between two kills."""


@dataclass(frozen=True)
class Reckoning:
    """The content of the streams in the end."""

    trees: int
    told: frozenset[int]
    """The numbers of verdicts that trees have: {1} if each has one."""
    differences: dict[str, tuple[int, int]]
    """Counters of Redis that differ from the streams, and their expected values."""


class Rotators:
    """Some rotator processes, forked from a small one."""

    def __init__(self, url: str, namespace: str, kind: str, count: int) -> None:
        command = [sys.executable, "-m", "tests.rotator.zygote", url, namespace, kind]
        self._zygote = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._pids = [self._ask("fork") for _ in range(count)]

    def replace(self) -> None:
        """Kill the oldest process, which must be alive, and start another."""
        assert self._ask(f"kill {self._pids.pop(0)}") == -9
        self._pids.append(self._ask("fork"))

    def close(self) -> None:
        assert self._zygote.stdin
        assert self._zygote.stdout
        self._zygote.stdin.close()
        self._zygote.wait(LIMIT)
        self._zygote.stdout.close()

    def _ask(self, words: str) -> int:
        assert self._zygote.stdin
        assert self._zygote.stdout
        print(words, file=self._zygote.stdin, flush=True)
        return int(self._zygote.stdout.readline())


class Load:
    """A producer that tracks loose trees and blocks, acks some, fails some, and forgets some."""

    def __init__(self, server: EmbeddedRedis, acker: Acker, blocks: bool) -> None:
        self.acker = acker
        self._blocks = blocks
        self.tracked: Counter[int] = Counter()
        self.stopping = threading.Event()
        self._server = server
        self._chance = random.Random(7)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def check(self) -> None:
        """Raise the exception that stopped the producer."""
        if self._error:
            raise self._error

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            with Acker.from_url(self._server.url, self.acker.namespace) as acker:
                while not self.stopping.is_set():
                    self._loose(acker)
                    if self._blocks:
                        self._block(acker)
                    while not self.stopping.is_set() and _waiting(acker) > MOST:
                        time.sleep(0.002)
        except BaseException as error:
            self._error = error

    def _loose(self, acker: Acker) -> None:
        tracks, done = Batch("loose"), Batch()
        for _ in range(LOOSE):
            anchor, message = new_anchor(), new_tuple_id()
            self.tracked[anchor] += 1
            tracks.track(anchor, f"s{anchor}", [message])
            self._end(done, anchor, message)
        for batch in (tracks, done):
            acker.apply(batch)

    def _block(self, acker: Acker) -> None:
        messages = [new_tuple_id() for _ in range(SLOTS)]
        anchors = acker.track_block("blocks", f"block {len(self.tracked)}", messages)
        self.tracked.update(anchors)
        done = Batch()
        for anchor, message in zip(anchors, messages, strict=True):
            self._end(done, anchor, message)
        acker.apply(done)

    def _end(self, done: Batch, anchor: int, message: int) -> None:
        fate = self._chance.random()
        if fate < 0.2:
            done.ack(anchor, message)
        elif fate < 0.25:
            done.fail(anchor, "as planned")


def _waiting(acker: Acker) -> int:
    status = acker.status()
    return status.pending + status.expiring


def _untold(acker: Acker) -> int:
    counters = acker.status().counters
    return counters["tracked"] - sum(counters[how] for how in ("acked", "failed", "expired"))


@contextmanager
def rotators(url: str, namespace: str, kind: str, count: int) -> Iterator[Rotators]:
    """Run rotator processes for the duration of a block."""
    running = Rotators(url, namespace, kind, count)
    try:
        yield running
    finally:
        running.close()


def kill_rotators(
    server: EmbeddedRedis, acker: Acker, *, kind: str, count: int, kills: int, spare: bool = False
) -> Reckoning:
    """Kill rotators that drain under load, and count the verdicts.

    A tick is due whenever a drain has ended. Each kill comes at a random moment of a drain. With
    ``spare`` no rotator is killed.
    """
    client, chance = acker.connection.client, random.Random(kills)
    shards = [ShardKeys(acker.namespace, shard) for shard in range(acker.config.shards)]

    def waiting() -> int:
        """Return the records left to drain; make the next tick due on shards without any."""
        with client.pipeline(transaction=False) as pipe:
            for keys in shards:
                pipe.hlen(keys.expiring).hlen(keys.blocks_expiring)
            left = pipe.execute()
            for keys, loose, blocks in zip(shards, left[::2], left[1::2], strict=True):
                if not loose + blocks:
                    pipe.hincrby(keys.meta, "ticked_ms", -4_000_000)
            pipe.execute()
        return sum(left)

    def expired() -> int:
        return sum(int(client.hget(keys.meta, "expired")) for keys in shards)

    load = Load(server, acker, blocks=kind == "service")
    try:
        with rotators(server.url, acker.namespace, kind, count) as running:
            for _ in range(kills):
                enough = expired() + KILLS_WHILE
                wait_until(
                    lambda enough=enough: (load.check(), waiting() and expired() >= enough)[1],
                    "trees expire",
                    pause=0.0005,
                )
                time.sleep(chance.random() * 0.003)
                if not spare:
                    running.replace()
            load.stop()
            # They are killed at the end, too; with ``spare`` they have finished by then.
            while spare and (_waiting(acker) or _untold(acker)):
                waiting()
    finally:
        load.stop()
    rotator = Rotator(acker)
    for _ in range(acker.config.buckets):
        rotator.step(force=True)
    return reckon(acker, load.tracked)


def reckon(acker: Acker, tracked: Counter[int]) -> Reckoning:
    """Read all streams, from which no verdict was taken, and compare."""
    told: Counter[int] = Counter(dict.fromkeys(tracked, 0))
    counted = {"tracked": len(tracked), "acked": 0, "failed": 0, "expired": 0, "backlog": 0}
    for task in TASKS:
        for verdict in (v for entry in acker.outcomes(task).read(10**6) for v in entry):
            told[verdict.anchor] += 1
            counted["backlog"] += 1
            counted[{"completed": "acked"}.get(verdict.reason, verdict.reason)] += 1
    status = acker.status()
    said = {**status.counters, "backlog": sum(status.backlog.values())}
    assert status.pending == status.expiring == 0
    assert all(counted.values()), "an expected kind of verdict is missing"
    differences = {k: (said[k], n) for k, n in counted.items() if said[k] != n}
    return Reckoning(len(tracked), frozenset(told.values()), differences)
