"""Compare verdicts and table with the result that pandas computes from the generated files."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from acker_redis import Outcome

KEY = ["order_id", "line"]


def order_lines(work: Path) -> pd.DataFrame:
    """Return all generated lines with the price that the list has now; NaN without one."""
    lines = pd.concat(pd.read_csv(path) for path in (work / "lines").glob("*.csv"))
    return lines.merge(pd.read_csv(work / "prices.csv"), how="left", on="product")


def table(work: Path) -> pd.DataFrame:
    """Return the table that job B writes."""
    with sqlite3.connect(work / "shop.db") as connection:
        return pd.read_sql("SELECT * FROM priced", connection)


def before_the_replay(work: Path, outcomes: Iterable[Outcome]) -> tuple[pd.DataFrame, list[str]]:
    """Return the lines that job B has lost, and each difference to the generated files."""
    lines = order_lines(work)
    unpriced = lines[lines.cents.isna()]
    verdicts = pd.DataFrame([(o.source_id, o.verdict, o.why) for o in outcomes])
    verdicts.columns = ["order_id", "verdict", "why"]
    nacks = verdicts[verdicts.verdict == "nack"]
    # The verdicts name the orders. In the queue are their lines, in the table those that arrived.
    queue = pd.read_parquet(sorted((work / "queue").glob("batch-*/*.parquet")))
    suspects = queue[queue.order_id.isin(nacks.order_id)]
    lost = suspects.merge(table(work)[KEY], how="left", on=KEY, indicator="found")
    lost = lost[lost.found == "left_only"].merge(nacks, on="order_id")
    checks = {
        "each order has one verdict": same(verdicts.order_id, lines.order_id.unique()),
        "the nacked orders are those with an unpriced line": same(
            nacks.order_id, unpriced.order_id.unique()
        ),
        "each nack says that a line vanished": nacks.why.str.startswith("vanished in batch").all(),
        "the lost lines are the unpriced lines": same(keys(lost), keys(unpriced)),
        "the table has the other lines": rows_are(table(work), lines[lines.cents.notna()]),
    }
    return lost, [name for name, holds in checks.items() if not holds]


def at_the_end(work: Path, nacked: Iterable[str]) -> list[str]:
    """Return each difference of verdicts and table to the generated files, after the replay."""
    lines = order_lines(work)
    verdicts = pd.read_parquet(sorted((work / "verdicts").glob("batch-*/*.parquet")))
    acks = verdicts[verdicts.verdict == "ack"].source_id
    found = table(work)
    checks = {
        "each line has a price": lines.cents.notna().all(),
        "each order has one ack": same(acks, lines.order_id.unique()),
        "the nacked orders have one nack": same(
            verdicts[verdicts.verdict == "nack"].source_id, nacked
        ),
        "the table has each line once": rows_are(found, lines),
        "the sums agree": found.cents.sum() == (lines.pieces * lines.cents).sum(),
        "no order was given up": not list((work / "given_up").glob("batch-*")),
    }
    return [name for name, holds in checks.items() if not holds]


def rows_are(found: pd.DataFrame, lines: pd.DataFrame) -> bool:
    """Return whether a table has exactly these lines, each once and with its sum."""
    expected = lines.assign(cents=(lines.pieces * lines.cents).astype("int64"))[found.columns]
    both = [each.sort_values(KEY, ignore_index=True) for each in (found, expected)]
    return both[0].equals(both[1])


def same(found: Iterable[object], expected: Iterable[object]) -> bool:
    """Return whether both have the same values, each as often."""
    return sorted(found) == sorted(expected)  # type: ignore[type-var]


def keys(lines: pd.DataFrame) -> list[tuple[str, int]]:
    """Return order and number of each line."""
    return list(lines[KEY].itertuples(index=False, name=None))
