"""The demo's final report: the delay table, and the reconciliation of every flight."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table
from rich.text import Text

from acker_flights.data import Expected
from acker_flights.results import Results

_SHADES = ((5, "green"), (15, "yellow"), (30, "dark_orange"))
_EXAMPLES = 5


Delays = dict[tuple[str, str, int], tuple[int, float]]
"""Number of flights and minutes of delay, by kind of message, carrier and hour."""


def read_delays(table: Path) -> Delays:
    """Return the number of flights with a known delay and the sum of minutes, as ``Delays``."""
    sums: Delays = {}
    for row in ds.dataset(table, format="parquet").to_table().to_pylist():
        key = (row["kind"], row["carrier"], row["hour"])
        flights, minutes = sums.get(key, (0, 0.0))
        sums[key] = (flights + row["flights"], minutes + (row["minutes"] or 0.0))
    return sums


def show_delays(console: Console, delays: Delays) -> None:
    """Draw the mean departure delay in minutes, by carrier and hour of day."""
    departures = {(c, hour): sums for (kind, c, hour), sums in delays.items() if kind == "weather"}
    hours = sorted({hour for _, hour in departures})
    title = "Mean departure delay in minutes, by carrier and hour of day"
    drawn = Table(title=title, box=None, padding=(0, 0, 0, 1), pad_edge=False)
    drawn.add_column("")
    for hour in hours:
        drawn.add_column(str(hour), justify="right", no_wrap=True)
    for carrier in sorted({carrier for carrier, _ in departures}):
        drawn.add_row(
            carrier, *[_cell(*departures.get((carrier, hour), (0, 0.0))) for hour in hours]
        )
    console.print(drawn)


def _cell(flights: int, minutes: float) -> Text:
    if not flights:
        return Text("·", style="bright_black")
    mean = round(minutes / flights)
    shade = next((style for limit, style in _SHADES if mean < limit), "red")
    return Text(str(mean), style=shade)


def reconcile(console: Console, results: Results, delays: Delays, expected: Expected) -> bool:
    """Compare the verdicts, flight by flight, and the delays with the CSV files.

    Return whether they are equal; print each kind of difference with examples. The delays are the
    output of the last bolt: a false ack, for a message that never arrived there, would show in
    them.
    """
    found: dict[str, Counter[str]] = {
        "acked": Counter(results.read("done")["source_id"].to_pylist())
    }
    for row in results.read("replay").to_pylist():
        found.setdefault(row["reason"], Counter())[row["source_id"]] += 1
    wanted = {"acked": expected.acked, "failed": expected.failed, "expired": expected.expired}
    right = delays == expected.delays
    if not right:
        wrong = {k for k in delays | expected.delays if delays.get(k) != expected.delays.get(k)}
        some = ", ".join(map(str, sorted(wrong)[:_EXAMPLES]))
        console.print(f"[red]delays differ in {len(wrong):,} sums, e.g. {some}[/red]")
    for verdict in wanted | found:
        ids, wanted_ids = found.get(verdict, Counter()), wanted.get(verdict, frozenset())
        differences = {
            "more than once": {flight for flight, count in ids.items() if count > 1},
            "but should not be": ids.keys() - wanted_ids,
            "is missing": wanted_ids - ids.keys(),
        }
        for what, flights in differences.items():
            if flights:
                right = False
                some = ", ".join(sorted(flights)[:_EXAMPLES])
                console.print(
                    f"[red]{verdict}, {what}: {len(flights):,} flights, e.g. {some}[/red]"
                )
    return right


def sum_up(
    console: Console, counters: Mapping[str, int], expected: Expected, right: bool, seconds: float
) -> None:
    """Print whether every flight has its verdict, and the line of totals."""
    if right:
        console.print("[green]Every flight has the verdict that the CSV files call for.[/green]")
    else:
        console.print(
            f"[red]The CSV files call for {len(expected.acked):,} acked, "
            f"{len(expected.failed):,} failed and {len(expected.expired):,} expired.[/red]"
        )
    console.print(
        f"{counters['tracked']:,} tracked = {counters['acked']:,} acked + "
        f"{counters['failed']:,} failed + {counters['expired']:,} expired, in {seconds:.1f} s"
    )
