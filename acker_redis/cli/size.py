"""The command size: what a load needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from acker_redis.cli.options import AsJson, add
from acker_redis.cli.output import say, say_json

PANEL = "Namespaces"


def size(
    trees_per_s: Annotated[float, typer.Option(help="Trees, i.e. source records, a second")],
    messages_per_tree: Annotated[
        float, typer.Option(help="Messages that a tree has on average, first messages included")
    ] = 5,
    lifetime: Annotated[
        float, typer.Option(help="Seconds from the first row of a tree to its verdict")
    ] = 5,
    tick_ms: Annotated[int, typer.Option(help="Milliseconds between rotations")] = 30_000,
    buckets: Annotated[int, typer.Option(help="Number of rotating buckets")] = 3,
    kind: Annotated[
        Literal["rows", "blocks"],
        typer.Option(help="rows: a row a message; blocks: numbered trees, 4000 in a block"),
    ] = "rows",
    node_price: Annotated[
        float | None,
        typer.Option(min=0, help="Price of a server for an hour; prints that of a month"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the servers, shards, memory and network that a load needs. Needs no Redis.

    The figures are extrapolated from the costs of one tree, measured with Redis 7.0.15, calls of a
    thousand rows and source ids of 14 bytes. benchmarks/scale.py repeats the measurement.
    """
    from rich.filesize import decimal

    from acker_redis.ops.sizing import Load, size

    load = Load(trees_per_s, messages_per_tree, lifetime, tick_ms, buckets, kind)
    found = size(load)
    price = None if node_price is None else found.servers * node_price * 730
    if as_json:
        extra = {"high_water": found.high_water, "price_per_month": price}
        say_json({**asdict(found), **extra})
        return
    short = found.needs[0]
    stays = _span(buckets * tick_ms / 1000)
    several = f" in each of {found.namespaces} namespaces" if found.namespaces > 1 else ""
    lines = {
        "messages": f"{load.messages_per_s:,.0f} a second",
        "servers": f"{found.servers:,}, each at most half busy, for {amount(found.redis_cores)} "
        "cores of Redis",
        "shards": f"{found.shards}{several}",
        "pending": f"{found.pending:,} trees, {decimal(found.pending_bytes)}",
        "stalled": f"{found.stalled:,} trees, {decimal(found.stalled_bytes)}: none completes for "
        f"{stays}",
        "high_water": f"{found.high_water:,}",
        "maxmemory": f"{decimal(found.maxmemory)} in all",
        "to Redis": f"{decimal(round(found.bytes_in_per_s))} a second",
        "from Redis": f"{decimal(round(found.bytes_out_per_s))} a second",
        "verdicts": f"{found.verdicts_per_s:,.0f} a second; until they are taken, memory grows by "
        f"{decimal(round(found.verdict_bytes_per_s))} a second",
        "programs": f"{amount(found.python_cores)} cores of Python that process messages",
        "first short": f"{short.name}: {_times(short.used)} {short.unit}",
    }
    if price is not None:
        lines["price"] = f"{price:,.2f} a month, without replicas"
    for name, text in lines.items():
        say(f"{name:<12}{text}")


def amount(value: float) -> str:
    """Return a number with two digits, or all digits of a larger one."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _span(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


def _times(used: float) -> str:
    return f"{amount(100 * used)} % of" if used < 1 else f"{amount(used)} x"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    add(app, PANEL, size, "size --trees-per-s 2000 --messages-per-tree 5 --lifetime 5")
