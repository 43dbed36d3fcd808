"""Measure acker-redis beside its peers: ``make bench-peers``.

    python benchmarks/peers/run.py [--small] [--installed] [--wait 120] [--store]

A tree of five messages goes through each peer. ``--store`` writes ``result.json``, from which the
chart and the table of the documentation are made. ``--installed`` skips the peers that would have
to be installed first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import redis
from environments import command
from measure import PeerError, figures, losses
from peers import PEERS, Peer
from report import Loss, Result, Row, heading, number, table
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import server_version

STORED = Path(__file__).with_name("result.json")


def main() -> None:
    """Read the arguments, measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="a twentieth of the trees")
    parser.add_argument("--installed", action="store_true", help="only peers that need nothing")
    parser.add_argument("--wait", type=int, default=120, help="seconds to wait for a lost message")
    parser.add_argument("--store", action="store_true", help="write result.json")
    args = parser.parse_args()
    console, load = Console(stderr=True), os.getloadavg()[0]
    chosen = [peer for peer in PEERS if not (args.installed and peer.needs)]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("", total=len(chosen) + 1)
        for needs in sorted({peer.needs for peer in chosen} - {""}):
            progress.update(whole, description=f"setting up {needs}")
            command(needs)
        rows = []
        for peer in chosen:
            progress.update(whole, description=peer.name)
            rows.append(figures(peer, max(20, peer.trees // (20 if args.small else 1))))
            words = rows[-1].skipped or f"{number(rows[-1].trees_per_s)} trees/s"
            progress.console.print(f"{peer.name}: {words}", highlight=False)
            progress.advance(whole)
        progress.update(whole, description=f"lost messages: waiting for up to {args.wait} s")
        rows = with_losses(chosen, rows, args.wait)
        progress.update(whole, completed=len(chosen) + 1, description="done")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    result = Result(today, server(), os.cpu_count() or 1, args.wait, args.small, load, tuple(rows))
    print(heading(result))
    print(table(result))
    if args.store:
        STORED.write_text(json.dumps(result.to_json(), indent=1) + "\n")


def with_losses(chosen: list[Peer], rows: list[Row], wait: int) -> list[Row]:
    """Lose messages of all programs side by side, since they mostly wait; once each program."""
    running = {p.program: p for p, row in zip(chosen, rows, strict=True) if not row.skipped}
    with ThreadPoolExecutor(max(len(running), 1)) as pool:
        found = dict(zip(running, pool.map(lambda p: seen(p, wait), running.values()), strict=True))
    return [
        replace(row, lost={} if row.skipped else found[peer.program])
        for peer, row in zip(chosen, rows, strict=True)
    ]


def seen(peer: Peer, wait: int) -> dict[str, Loss]:
    """Return the observations; if the program fails, nothing is known, and it says so."""
    try:
        return losses(peer, wait)
    except PeerError as error:
        return {"killed": Loss("not measured", str(error), 0)}


def server() -> str:
    """Return the version of the server that all peers use."""
    with EmbeddedRedis(tcp=True) as started:
        client = redis.Redis.from_url(started.url)
        return str(server_version.of_info(client.info("server")))


if __name__ == "__main__":
    main()
