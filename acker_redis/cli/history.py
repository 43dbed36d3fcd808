"""Commands that read the history of a namespace: slo and history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import say, say_json, warn
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from acker_redis.flows.history import History
    from acker_redis.protocol.losses import Losses
    from acker_redis.protocol.series import Bucket
    from acker_redis.protocol.slo import Objective

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV, with a header")]
ROWS = 24
"""Rows of the table of a history."""


def slo(
    namespace: Namespace, url: Url = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Show how many trees completed in time over 30 days, per source, and the error budget left.

    The objective is set by slo_target and slo_ms of the namespace. Each attempt of a record counts.
    The burn rate is the share of bad trees divided by the share that the target allows: at 1 the
    budget lasts for the 30 days. If there were nacks in the last 15 minutes, the last line says how
    many, and since when. The figures are from the history that the rotators write.
    """
    from acker_redis.flows.history import losses_of, objectives_of, read_slo
    from acker_redis.protocol import tables

    with options.acker(namespace, url) as acker:
        readings = acker.connection.drive(read_slo(acker.flows))
    found, lost = objectives_of(readings), losses_of(readings)
    if as_csv:
        now_ms = readings.status.shards[0].now_ms
        say(tables.objectives_csv(namespace, found, now_ms).rstrip())
    elif as_json:
        shown = [*map(tables.objective_json, found)]
        nacks = tables.losses_json(lost)
        say_json({"namespace": namespace, "objectives": shown, "nacks": nacks})
    else:
        for objective in found:
            say(f"{objective.source or namespace}: {objective.sentence}{_burning(objective)}")
        if lost:
            say(f"{namespace}: {_lost(lost)}")
        if not found[0].share.over_ms:
            warn("there is no history yet; a rotator writes it: acker-redis rotator " + namespace)


def _lost(lost: Losses) -> str:
    from acker_redis.protocol.slo import percent, time_of

    since = f"{'since' if lost.since_known else 'at least since'} {_clock(lost.since_ms)}"
    share = percent(100 * lost.nacked / lost.ended)
    ended = f"{lost.ended:,} trees that ended in the last {time_of(lost.over_ms)}"
    return f"{lost.nacked:,} of the {ended} were nacked ({share} %); there are nacks {since}"


def _burning(objective: Objective) -> str:
    rates = {name: each.burn_rate(objective.target) for name, each in objective.burns.items()}
    known = [f"{rate:g} over {name}" for name, rate in rates.items() if rate is not None]
    return f"; burn rate {', '.join(known)}" if known else ""


def history(
    namespace: Namespace,
    wanted: Annotated[
        Literal["15m", "1h", "24h", "30d"], typer.Option("--range", help="Time to show, up to now")
    ] = "1h",
    url: Url = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show what happened to the trees of a namespace: a table, or each minute or hour.

    The rotators write a point a minute, and keep points of minutes for 24 hours and points of hours
    for 30 days. A gap means that no rotator ran. --csv and --json have each minute, or hour of 30d.
    """
    from acker_redis.flows.history import history_of, read_history
    from acker_redis.protocol import tables

    with options.acker(namespace, url) as acker:
        readings = acker.connection.drive(read_history(acker.flows, wanted))
    found = history_of(readings, wanted)
    if as_csv:
        say(tables.history_csv(found.buckets).rstrip())
    elif as_json:
        say_json(
            {
                "namespace": namespace,
                "range": found.range,
                "from_ms": found.from_ms,
                "now_ms": found.now_ms,
                "step_ms": found.step_ms,
                "high_water": found.high_water,
                "buckets": [*map(tables.bucket_json, found.buckets)],
            }
        )
    else:
        _draw(found)


def _draw(found: History) -> None:
    from acker_redis.protocol.series import merged_buckets

    buckets = merged_buckets(found.buckets, ROWS)
    names = ("tracked", "acked", "failed", "expired", "overflow", "conflict", "open", "waiting")
    say(f"{'until':16}" + "".join(f"{name:>11}" for name in names))
    for bucket in buckets:
        say(f"{_clock(bucket.to_ms):16}{_numbers(bucket, names)}{_notes(bucket)}".rstrip())


def _numbers(bucket: Bucket, names: Sequence[str]) -> str:
    both = {**bucket.counts, **bucket.gauges}
    return "".join(f"{both[name]:>11,}" for name in names)


def _notes(bucket: Bucket) -> str:
    notes = ["no points since " + _clock(bucket.from_ms)] if bucket.gap else []
    words = {"reset": "counters were set back", "restart": "Redis started again"}
    notes += [words[mark] for mark in sorted(bucket.marks) if mark in words]
    if "settings" in bucket.marks:
        pairs = [f"{name} {old:g} -> {new:g}" for name, (old, new) in bucket.changes.items()]
        notes.append(", ".join(pairs) or "settings changed")
    if bucket.gauges["down"]:
        notes.append(f"no answer to sources on {count_of(bucket.gauges['down'], 'edge')}")
    if bucket.counts["useless"]:
        notes.append(f"useless work on {count_of(bucket.counts['useless'], 'expired tree')}")
    return f"  {'; '.join(notes)}" if notes else ""


def _clock(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))


PANEL = "Pending trees and verdicts"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(app, PANEL, slo, "slo orders", "slo orders --csv > slo.csv")
    add(app, PANEL, history, "history orders --range 24h", "history orders --range 30d --csv")
