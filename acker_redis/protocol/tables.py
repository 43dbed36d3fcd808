"""A history and its objectives as JSON and as CSV, for the command line and REST."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from acker_redis.protocol.losses import Losses
from acker_redis.protocol.series import COUNTS, GAUGES, Bucket
from acker_redis.protocol.slo import Objective, Share

_BUCKET = ("from_ms", "to_ms", *COUNTS, *GAUGES, "ticks", "gap", "marks")
_OBJECTIVE = (
    *("namespace", "source", "from_ms", "to_ms", "target_percent", "within_ms", "ended", "good"),
    *("good_percent", "budget_left_percent", "burn_rate_5m", "burn_rate_1h", "burn_rate_6h"),
)


def bucket_json(bucket: Bucket) -> dict[str, Any]:
    """Return a bucket: times in ms since 1970, growth of counters, gauges, and what happened."""
    return {
        "from_ms": bucket.from_ms,
        "to_ms": bucket.to_ms,
        **bucket.counts,
        **bucket.gauges,
        "ticks": bucket.ticks,
        "gap": bucket.gap,
        "marks": sorted(bucket.marks),
        "changes": {name: list(pair) for name, pair in bucket.changes.items()},
    }


def objective_json(objective: Objective) -> dict[str, Any]:
    """Return an objective; percentages are None if no tree ended."""
    share, target = objective.share, objective.target
    return {
        "source": objective.source,
        "target_percent": target,
        "within_ms": objective.within_ms,
        "over_ms": share.over_ms,
        "ended": share.ended,
        "good": share.good,
        "good_percent": objective.ratio,
        "met": objective.met,
        "budget_left_percent": objective.budget_left,
        "burn_rates": {name: _burn(each, target) for name, each in objective.burns.items()},
        "sentence": objective.sentence,
    }


def losses_json(losses: Losses | None) -> dict[str, Any] | None:
    """Return recent nacks; None if there are none."""
    return asdict(losses) if losses else None


def history_csv(buckets: Iterable[Bucket]) -> str:
    """Return the buckets as CSV, with a header."""
    rows = ([bucket_json(bucket)[name] for name in _BUCKET] for bucket in buckets)
    return _csv(_BUCKET, ([*row[:-1], " ".join(row[-1])] for row in rows))


def objectives_csv(namespace: str, objectives: Sequence[Objective], now_ms: int) -> str:
    """Return the objectives as CSV, with a header; the first row is the whole namespace."""
    rows = []
    for each in objectives:
        share, burns = each.share, each.burns
        numbers = [each.target, each.within_ms, share.ended, share.good]
        rates = [burns[name].burn_rate(each.target) if name in burns else None for name in _RATES]
        times = [now_ms - share.over_ms, now_ms]
        rows.append(
            [namespace, each.source, *times, *numbers, each.ratio, each.budget_left, *rates]
        )
    return _csv(_OBJECTIVE, rows)


_RATES = ("5m", "1h", "6h")


def _burn(share: Share, target: float) -> dict[str, Any]:
    return {
        "over_ms": share.over_ms,
        "ended": share.ended,
        "good": share.good,
        "rate": share.burn_rate(target),
    }


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(
            ["" if v is None else str(v).lower() if isinstance(v, bool) else v for v in row]
        )
    return made.getvalue()
