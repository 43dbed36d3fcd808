"""The command groups: completion groups of the sources of a namespace."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn

PANEL = "Pending trees and verdicts"


def groups(
    namespace: Namespace,
    source: Annotated[str | None, typer.Argument(help="Source of one group")] = None,
    group: Annotated[str | None, typer.Argument(help="Name of one group of that source")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Open, and failed, records to print at most")
    ] = 1000,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the group; its records go on without it")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the completion groups of a namespace, or the open and failed records of one group.

    A group is open until its block has ended, then sealed until each record has its verdict, and
    reported when the callback of its source has returned. Lines have fields separated by tabs. Of
    all groups: source, group, state, records, acked, failed; the numbers of records are known once
    a group is sealed, and the last two once it is reported. Of one group: open or failed, source
    id, why.
    """
    from acker_redis.errors import ConfigError
    from acker_redis.flows.groups import forget_group, read_groups, read_members

    if (source is None) != (group is None) or (forget and group is None):
        raise ConfigError("name both SOURCE and GROUP")
    with options.acker(namespace, url) as acker:
        acker.status()  # raises if there is no such namespace
        drive = acker.connection.drive
        states = drive(read_groups(acker.flows))
        if source is None or group is None:
            if as_json:
                say_json({"namespace": namespace, "groups": [asdict(each) for each in states]})
            for each in [] if as_json else states:
                numbers = each.records, each.acked, each.failed
                say("\t".join(map(str, (each.source, each.name, each.state, *numbers))))
            return
        state = next((s for s in states if (s.source, s.name) == (source, group)), None)
        if state is None:
            warn(f"source {source} has no group {group}")
            raise typer.Exit(Exit.FAILED)
        if forget:
            drive(forget_group(acker.flows, source, group))
            return
        found = drive(read_members(acker.flows, source, group, limit))
    if as_json:
        counts = {"open": found.opened, "acked": found.acked, "failed": found.failed}
        say_json(
            {
                "namespace": namespace,
                **asdict(state),
                **counts,
                "open_records": found.open,
                "failed_records": found.failures,
            }
        )
        return
    for id_ in found.open:
        say(f"open\t{id_}\t")
    for id_, why in found.failures.items():
        say(f"failed\t{id_}\t{why}")
    more = found.opened + found.failed - len(found.open) - len(found.failures)
    if more:
        warn(f"{more} more; print them with --limit")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    add(app, PANEL, groups, "groups orders", "groups orders shop import-2026-11")
