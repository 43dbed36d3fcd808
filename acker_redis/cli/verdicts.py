"""Commands outcomes and take: a shell reads verdicts, and takes those it has handled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from acker_redis.cli import options
from acker_redis.cli.lines import chunks
from acker_redis.cli.options import AsJson, Namespace, Source, Url, add
from acker_redis.cli.output import say, say_json, warn
from acker_redis.errors import AckerError, InvalidBatchError, RedisUnavailableError
from acker_redis.protocol.labels import source_id_of
from acker_redis.protocol.why import why_expired
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from acker_redis.flows.outcomes import OutcomeFlows
    from acker_redis.protocol.outcome import Entry, Outcome
    from acker_redis.sync.client import Acker

PANEL = "Pending trees and verdicts"
FOLLOWED = 0.2
"""Seconds between two reads of followed streams."""
SWEPT = 10.0
"""Seconds between two reads from the oldest entry: after a failover new ids may be smaller."""
ENTRIES = 16
NAMED = 8
"""Sources that a warning names."""


def outcomes(
    namespace: Namespace,
    source: Source,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more verdicts until Ctrl-C")
    ] = False,
    take: Annotated[
        bool, typer.Option("--take", help="Delete printed verdicts; not into a pipe, see above")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="Print at most this many; with --take, whole entries"
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print the verdicts that wait for a source, without deleting them.

    Each line has fields separated by tabs: verdict, reason, source id, anchor, age in ms, why,
    entry. For a tree in a block the source id is LABEL#SLOT. Records that Spark has counted have
    the source id that Spark gives them.

    The why of a tree that expired names the edges on which messages are missing: an edge is named
    if an odd number of messages is unaccounted for on it. It also says how long ago the last row of
    the tree was, and how old the tree was. The command explain finds the messages themselves.

    The command take deletes verdicts. In a pipe, put your program between outcomes and take: for
    each line that it has handled, it prints the line, or the line's last field.

    A name that no source of the namespace has is reported, unless verdicts wait for it. A source
    without trees is forgotten after 100 ticks.

    --take deletes verdicts as soon as they are printed. Use it only when the output is a file: if
    the reader of a pipe dies, the verdicts that it has not read are lost.
    """
    from acker_redis.cli import shapes
    from acker_redis.flows.outcomes import OutcomeFlows

    with options.acker(namespace, url) as acker:
        flows = OutcomeFlows(acker.flows.shards(acker.config), source, acker.config.edges)
        printed = 0
        _warn_of_unknown(acker, source)
        for entry in _entries(acker, flows, follow, take):
            for outcome in entry:
                # An entry is taken as a whole, so --take prints all of it.
                if printed == limit and not take:
                    return
                printed += 1
                if as_json:
                    say_json(shapes.outcome(outcome, entry), pretty=False)
                else:
                    say(_line(outcome, entry))
            if take:
                try:
                    acker.connection.drive(flows.take([entry]))
                except RedisUnavailableError as error:
                    if not follow:
                        raise
                    warn(f"{error}; these verdicts may be printed again")
            if limit is not None and printed >= limit:
                return


def _warn_of_unknown(acker: Acker, source: str) -> None:
    with suppress(AckerError):  # verdicts of a damaged namespace can be read
        known = acker.status().backlog
        if source in known:
            return
        some = ", ".join(sorted(known)[:NAMED]) or "none"
        more = f" and {len(known) - NAMED:,} more" if len(known) > NAMED else ""
        warn(f"{acker.namespace} has had no source {source} lately; its sources: {some}{more}")


def take(
    namespace: Namespace,
    source: Source,
    entries: Annotated[
        list[str],
        typer.Argument(help="Entries SHARD:ID, the last field of a line; - reads lines of stdin"),
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete verdicts that the source has handled.

    An entry holds verdicts that were decided together. Each line of stdin stands for one handled
    verdict, and ends with its entry. An entry is deleted once all its verdicts were handled.
    Otherwise the next run of outcomes prints its verdicts again.
    """
    with options.acker(namespace, url) as acker:
        taker = _Taker(acker, source)
        if entries == ["-"]:
            for lines in chunks():
                for number, text in lines:
                    taker.handled(_place(text, f"line {number} of stdin"))
        else:
            for text in entries:
                taker.take(_place(text, repr(text)))
    if taker.waiting:
        warn(f"{len(taker.waiting):,} entries were handled partially; outcomes prints them again")
    if as_json:
        say_json({"verdicts": taker.taken, "unfinished_entries": len(taker.waiting)})
    else:
        say(f"{count_of(taker.taken, 'verdict')} taken")


Place = tuple[int, str]
"""Shard and id of an entry."""


class _Taker:
    """Takes each entry once all its verdicts were handled."""

    def __init__(self, acker: Acker, source: str) -> None:
        from acker_redis.flows.outcomes import OutcomeFlows

        self._acker = acker
        self._flows = OutcomeFlows(acker.flows.shards(acker.config), source, acker.config.edges)
        self.waiting: Counter[Place] = Counter()
        """Number of unhandled verdicts per entry."""
        self.taken = 0

    def take(self, place: Place) -> None:
        """Take an entry as a whole."""
        if entry := self._read(place):
            self.taken += self._acker.connection.drive(self._flows.take([entry]))

    def handled(self, place: Place) -> None:
        """Count one more handled verdict of an entry; ignore an entry that was deleted."""
        if place not in self.waiting:
            entry = self._read(place)
            if not entry:
                return
            self.waiting[place] = sum(1 for _ in entry)
        self.waiting[place] -= 1
        if not self.waiting[place]:
            del self.waiting[place]
            self.take(place)

    def _read(self, place: Place) -> Entry | None:
        return self._acker.connection.drive(self._flows.entry(*place))


def _entries(acker: Acker, flows: OutcomeFlows, follow: bool, take: bool) -> Iterator[Entry]:
    """Yield each entry once, oldest first; without ``follow`` only those that wait now."""
    after: dict[int, str] = {}
    seen, met, swept, away = set[Place](), set[Place](), time.monotonic(), False
    while True:
        try:
            entries = acker.connection.drive(flows.read(ENTRIES, after))
            away = False
        except RedisUnavailableError as error:
            if not follow:
                raise
            if not away:
                warn(f"{error}; waiting until Redis is back")
            away, entries = True, []
            time.sleep(1.0)
        for entry in entries:
            place = entry.shard, entry.id
            met.add(place)
            if take or place not in seen:
                seen.add(place)
                yield entry
            if not take:
                after[entry.shard] = entry.id
        if entries:
            continue
        if not follow:
            return
        if time.monotonic() - swept > SWEPT:
            # Read from the oldest entry again; entries not met in this pass were deleted.
            seen, met, swept, after = met, set(), time.monotonic(), {}
        time.sleep(FOLLOWED)


def _place(text: str, where: str) -> Place:
    shard, _, id_ = text.rpartition("\t")[2].partition(":")
    if not shard.isdecimal() or not id_.replace("-", "", 1).isdecimal():
        raise InvalidBatchError(f"{where}: an entry is SHARD:MS-N, the last field of outcomes")
    return int(shard), id_


def _line(outcome: Outcome, entry: Entry) -> str:
    name, fields = record_of(outcome), (outcome.verdict, outcome.reason)
    numbers = str(outcome.anchor), str(outcome.age_ms)
    why, place = outcome.why or why_expired(outcome), f"{entry.shard}:{entry.id}"
    return "\t".join([*fields, name, *numbers, why, place])


def record_of(outcome: Outcome) -> str:
    """Return the source id of the record; for a tree in a block, from its label and slot."""
    if outcome.slot is None:
        return outcome.source_id
    return source_id_of(outcome.source_id, outcome.anchor)


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(
        app,
        PANEL,
        outcomes,
        "outcomes orders shop --follow",
        "outcomes orders shop --take > verdicts.tsv",
        "outcomes orders shop | ./handle.sh | acker-redis take orders shop -",
    )
    add(app, PANEL, take, "take orders shop 0:1700000000000-0", "take orders shop - < handled")
