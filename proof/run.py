"""Run histories on a shard, and summarize them."""

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.commands import COUNTERS
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import NAMESPACES
from acker_redis.sync.client import Acker
from acker_redis.transport.errors import translate
from proof.simulate.backends import Backend, RedisBackend, ReferenceBackend
from proof.simulate.redis_shard import RedisShard, glob
from proof.simulate.replay import History, Replayed, replay
from proof.simulate.world import MakeBackends, Played, World


@contextlib.contextmanager
def url_of(server: str) -> Iterator[str]:
    """Yield the URL of a server: '' for ``reference``; ``embedded`` and ``both`` start one."""
    if server in ("embedded", "both"):
        with EmbeddedRedis() as running:
            yield running.url
    else:
        yield "" if server == "reference" else server


def play(
    seed: int,
    trees: int,
    faults: Sequence[str],
    breaks: str = "",
    url: str = "",
    both: bool = False,
    blocks: str = "some",
) -> Played:
    """Play one history: without a ``url`` on the reference, else on that server, or on ``both``.

    ``blocks`` says which trees are in blocks: none, some or only (all).
    On a server it has a separate namespace, ``sim-<random>``, which is removed afterwards.
    Raises RedisUnavailableError or RedisRefusedError if the server cannot be used.
    """
    with _shards(url, both) as make:
        return World(seed, trees, faults, make, breaks, blocks).play()


def play_history(history: History, url: str = "", both: bool = False) -> Replayed:
    """Replay a history that was read from a file, on the shard that ``play`` would use."""
    with _shards(url, both) as make:
        return replay(history, make)


@contextlib.contextmanager
def _shards(url: str, both: bool) -> Iterator[MakeBackends]:
    """Yield a function that creates the shard of a history; remove it at the end."""
    with contextlib.ExitStack() as stack:

        def make(config: AckerConfig, tasks: Sequence[str]) -> list[Backend]:
            shards: list[Backend] = []
            if url:
                acker = stack.enter_context(_namespace(url, config))
                shards.append(RedisBackend(RedisShard(acker), tasks))
            if both or not url:
                shards.append(ReferenceBackend(config))
            return shards

        try:
            yield make
        except redis.exceptions.RedisError as error:
            raise translate(error) from error


@contextlib.contextmanager
def _namespace(url: str, config: AckerConfig) -> Iterator[Acker]:
    # The name is no part of the history: it is neither compared nor printed.
    with Acker.from_url(url, f"sim-{secrets.token_hex(6)}") as acker:
        try:
            acker.create(config)
            yield acker
        finally:
            client = acker.connection.client
            # If the server is unavailable, an earlier call has already reported it.
            with contextlib.suppress(redis.exceptions.RedisError):
                for key in client.scan_iter(glob(f"acker:{{{acker.namespace}:") + "*", count=1000):
                    client.unlink(key)
                client.srem(NAMESPACES, acker.namespace)


def summary(played: Iterable[Played]) -> list[tuple[str, int]]:
    """Return the rows of the final table: a state, and how often it occurred."""
    totals, counts, seeds, trees, ticks = Counter[str](), Counter[str](), 0, 0, 0
    for each in played:
        totals.update(each.counters)
        counts.update(each.counts)
        seeds, trees, ticks = seeds + 1, trees + each.trees, ticks + each.ticks
    endings = [(name, totals[name]) for name in COUNTERS]
    return [("seeds", seeds), ("trees", trees), ("ticks", ticks), *endings, *sorted(counts.items())]


def smallest(found: Played, again: Callable[[int, int], Played], seeds: int = 100) -> Played:
    """Return a history of as few trees as possible with a violation of the same kind.

    ``again`` plays the history of a seed and of a number of trees.
    """
    for trees in (1, 2, 3, 5, 8, 13, 21):
        for seed in range(1, seeds + 1) if trees < found.trees else ():
            played = again(seed, trees)
            if (
                found.violation
                and played.violation
                and played.violation.kind == found.violation.kind
            ):
                return played
    return found


def explain(played: Played, replay: str) -> str:
    """Return the violation, the trace of its tree, and the command that replays it."""
    lines = [f"seed {played.seed}: {played.violation}"]
    anchor = played.violation.anchor if played.violation else 0
    lines.append(
        f"Last events of tree {anchor:x}, at ticks:" if anchor else "Last events, at ticks:"
    )
    return "\n".join([*lines, *played.trace, f"Replay: {replay}"])
