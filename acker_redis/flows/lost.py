"""Find trees that Redis has lost: tracked, not pending, and without a verdict. No I/O.

**The order is the proof.** A tree that is not pending has a verdict, or is lost. So ``alive`` is
asked first. A verdict of before that moment then waits in the stream, or was taken from it. So the
stream is read next. A verdict that was taken before is in the table of the program, which takes a
verdict only after it has stored it. So the table is read last. In another order, the verdict of a
tree that ends in between would be overlooked.

**A table that is not up to date** would make each verdict that it lacks a lost tree. So it must
hold the verdict that was taken last, as far as the stream says which one that was.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from acker_redis.errors import BacklogError, ConfigError, RedisRefusedError
from acker_redis.flows.alive import ask_alive
from acker_redis.flows.known import KnownNamespace
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.flows.steps import Flow, Tell, ask_until, together
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Entry
from acker_redis.trees.lost import StoredVerdict, TrackedTree, undecided

PAGE = 64
"""Entries of each shard that are read at once."""


class StoredVerdicts(NamedTuple):
    """The verdicts that a program has stored, for :meth:`Acker.lost`.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> acker.lost("shop", [], lambda anchors: StoredVerdicts(newest_ms=0, verdicts=[]))
        []

    """

    newest_ms: int
    """``at_ms`` of its latest verdict of the source; 0 without one."""
    verdicts: Iterable[StoredVerdict]
    """Its verdicts of the anchors that were asked for; others are ignored."""


ReadTable = Callable[[list[int]], Any]


def find_lost(
    flows: KnownNamespace,
    source: str,
    tracked: Iterable[TrackedTree],
    table: ReadTable,
    within_ms: int,
) -> Flow[list[TrackedTree]]:
    """See :meth:`Acker.lost`."""
    if within_ms < 0:
        raise ConfigError(f"within is a number of seconds, 0 or more, not {within_ms / 1000!r}")
    deadline = time.monotonic() + flows.retry_for
    given = list(tracked)
    config = yield from flows.config(fresh=True)
    alive = yield from ask_alive(flows, [each.anchor for each in given], deadline)
    newest: dict[int, int] = {}
    for tree in given:
        newest[tree.anchor] = max(tree.at_ms, newest.get(tree.anchor, 0))
    old = []
    for tree in given:
        pending, its = alive[tree.anchor]
        is_pending = pending and tree.at_ms == newest[tree.anchor]
        # A tree whose TRACK may still be on its way is that of a later call.
        if not is_pending and tree.at_ms + within_ms <= its.now_ms:
            old.append(tree)
    if not old:
        return []
    shards = [ShardKeys(flows.namespace, shard) for shard in range(config.shards)]
    waiting = yield from _waiting(OutcomeFlows(shards, source))
    streams = [_taken_ms(keys.outcomes(source), deadline) for keys in shards]
    taken_ms = max((yield from together(streams)))
    anchors = list(dict.fromkeys(tree.anchor for tree in old))
    (stored,) = yield Tell(table, ((anchors,),))
    if isinstance(stored, BaseException):
        raise stored
    newest_ms, verdicts = stored
    if newest_ms < taken_ms:
        raise BacklogError(
            f"the table of verdicts of {source} is not up to date: its latest is of {newest_ms}, "
            f"and one of {taken_ms} was taken (ms since 1970); store verdicts before they are "
            "taken, and call this again when the table has caught up"
        )
    return undecided(old, [*waiting, *verdicts], within_ms)


def _waiting(outcomes: OutcomeFlows) -> Flow[list[StoredVerdict]]:
    """Return the verdicts that wait in the streams of a source, without touches."""
    found: list[StoredVerdict] = []
    after: dict[int, str] = {}
    asked = set(range(outcomes.shards))
    while asked:
        page = yield from outcomes.read_each(asked, PAGE, after)
        for error in page.errors.values():
            raise error
        for entry in page.entries:
            after[entry.shard] = entry.id
            found += _decided(entry)
        asked = {shard for shard, count in page.read.items() if count == PAGE}
    return found


def _decided(entry: Entry) -> Iterator[StoredVerdict]:
    for each in entry:
        if each.verdict != "touch":
            yield StoredVerdict(each.anchor, entry.at_ms, each.age_ms, 1, each.reason)


def _taken_ms(stream: str, deadline: float) -> Flow[int]:
    """Return the time of the entry that was taken last from a stream; 0 if that is not known.

    Redis 6.2 does not say which entry was deleted last: then only an empty stream tells.
    """
    try:
        info = yield from ask_until(("XINFO STREAM", stream), deadline)
    except RedisRefusedError as error:
        if "no such key" in str(error):
            return 0
        raise
    found = {_text(name): value for name, value in info.items()}
    last = found.get("max-deleted-entry-id")
    if last is None:
        last = "0-0" if found["length"] else found["last-generated-id"]
    return int(_text(last).partition("-")[0])


def _text(word: bytes | str) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
