"""The command explain: the missing messages of expired trees, by the ids of all messages."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from acker_redis.cli import options
from acker_redis.cli.messages import Messages
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn
from acker_redis.cli.verdicts import record_of
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from acker_redis.missing.explain import Explanation
    from acker_redis.protocol.outcome import Outcome
    from acker_redis.sync.client import Acker

PANEL = "Pending trees and verdicts"
ENTRIES = 64
"""Entries per read of a source's streams, over all shards: each may have 192 KiB."""


class Expired(NamedTuple):
    """An expired tree: its source, and its verdict."""

    source: str
    outcome: Outcome


def explain(
    namespace: Namespace,
    ids: Annotated[
        Path,
        typer.Option("--ids", help="File of messages, one per line; - for stdin"),
    ],
    source: Annotated[str, typer.Option("--source", help="Only trees of this source")] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Explain at most this many trees")
    ] = 100_000,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Name the missing messages of expired trees whose verdicts wait. No verdict is deleted.

    The file has the messages that were sent, such as the files of a queue, or a log. A line is a
    message id ANCHOR:TUPLE[,ANCHOR:TUPLE...] and, after a blank or a tab, any text; or a JSON
    object with a field acker-tuple. Lines of other trees are skipped.

    Each line of output has fields separated by tabs: found, source, source id, anchor, edge, ms
    from the tree's last row to its end, and the line of the message. A message is missing if it was
    announced and not acked, or acked and never announced.

    A tree of which no message can be named has one line, which begins with the reason. none: no set
    of messages in the file explains it. several: more than one set does, or the anchor had several
    trees. unknown: its block has lost its checksums, or which of its slots hold a tree. The last
    field of this line is the number of its messages in the file.

    A running source takes its verdicts at once. Exit code 1 if no message was named.
    """
    with _opened(ids) as (file, name), options.acker(namespace, url) as acker:
        trees, more = _waiting(acker, source, limit)
        if not trees:
            warn(f"no verdict of an expired tree waits{f' for {source}' if source else ''}")
            raise typer.Exit(Exit.FAILED)
        edges = acker.config.edges
        messages = Messages(tree.outcome.anchor for tree in trees)
        try:
            messages.add_all(file, name)
            found = _explain(trees, messages, edges, as_json)
        finally:
            messages.close()
    others = ", ".join(f"{count:,} {why}" for why, count in found.items() if why != "found")
    warn(
        f"named the missing messages of {found['found']:,} of "
        f"{count_of(len(trees), 'expired tree')}"
        f"{f' ({others})' if others else ''}; {messages.kept:,} of "
        f"{count_of(messages.read, 'line')} belong to these trees"
    )
    if more:
        warn("more expired trees wait; --limit raises the number of trees")
    if not found["found"]:
        raise typer.Exit(Exit.FAILED)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    """Open the file of messages; yield it and its name for errors."""
    if str(path) == "-":
        yield sys.stdin.buffer, "stdin"
        return
    with path.open("rb") as file:
        yield file, str(path)


def _waiting(acker: Acker, source: str, limit: int) -> tuple[list[Expired], bool]:
    """Return up to ``limit`` expired trees, and whether more wait.

    Two trees have one anchor if their block was tracked again after it had expired.
    """
    trees = list[Expired]()
    for each in _expired(acker, source):
        if len(trees) == limit:
            return trees, True
        trees.append(each)
    return trees, False


def _expired(acker: Acker, source: str) -> Iterator[Expired]:
    """Yield the expired trees whose verdicts wait now, source by source and page by page."""
    from acker_redis.flows.outcomes import OutcomeFlows

    status = acker.status()
    now = max(shard.now_ms for shard in status.shards)
    count = max(1, ENTRIES // status.config.shards)
    waiting = [name for name, verdicts in sorted(status.backlog.items()) if verdicts]
    for name in [source] if source else waiting:
        flows = OutcomeFlows(acker.flows.shards(status.config), name, status.config.edges)
        after = dict[int, str]()
        while entries := acker.connection.drive(flows.read(count, after)):
            for entry in entries:
                after[entry.shard] = entry.id
                if entry.block and entry.block.reason != "expired":
                    continue
                yield from (Expired(name, each) for each in entry if each.reason == "expired")
            if min(entry.at_ms for entry in entries) > now:
                break  # these are younger than the command


def _explain(
    trees: list[Expired], messages: Messages, edges: tuple[str, ...], as_json: bool
) -> Counter[str]:
    """Print the explanation of each tree; return how many trees have which one."""
    from acker_redis.missing.explain import Explanation, explain_tree
    from acker_redis.protocol.ids import EDGE_BIT

    counts = Counter[str]()
    # A message of an earlier tree of an anchor may have been acked in a later one.
    ends = Counter(tree.outcome.anchor for tree in trees)
    for tree in trees:
        ids = messages.of(tree.outcome.anchor)
        said = explain_tree(tree.outcome.residual, tuple(ids), EDGE_BIT if edges else 63)
        if ends[tree.outcome.anchor] > 1:
            said = Explanation("several", (), len(ids))
        counts[said.found] += 1
        lines = [messages.line(ids[tuple_id]) for tuple_id in said.ids]
        if as_json:
            say_json(_shape(tree, said, lines, edges), pretty=False)
        else:
            _say(tree, said, lines, edges)
    return counts


def _say(tree: Expired, said: Explanation, lines: list[str], edges: tuple[str, ...]) -> None:
    from acker_redis.protocol.outcome import odd_edges

    outcome = tree.outcome
    first = (said.found, tree.source, record_of(outcome), str(outcome.anchor))
    idle = str(outcome.idle_ms)
    for tuple_id, line in zip(said.ids, lines, strict=True):
        say("\t".join([*first, ",".join(odd_edges(edges, tuple_id)), idle, line]))
    if not lines:
        say("\t".join([*first, ",".join(outcome.edges), idle, str(said.messages)]))


def _shape(
    tree: Expired, said: Explanation, lines: list[str], edges: tuple[str, ...]
) -> dict[str, Any]:
    from acker_redis.cli import shapes
    from acker_redis.protocol.outcome import odd_edges

    outcome = tree.outcome
    return {
        "found": said.found,
        "source": tree.source,
        "source_id": outcome.source_id,
        "slot": outcome.slot,
        "anchor": str(outcome.anchor),
        "age_ms": outcome.age_ms,
        **shapes.expired(outcome),
        "messages": said.messages,
        "missing": [
            {
                "message": f"{outcome.anchor}:{tuple_id}",
                "edges": list(odd_edges(edges, tuple_id)),
                "line": line,
            }
            for tuple_id, line in zip(said.ids, lines, strict=True)
        ],
    }


def register(app: typer.Typer) -> None:
    """Register the command."""
    add(
        app,
        PANEL,
        explain,
        "explain orders --ids sent.log",
        "explain orders --ids - --json < sent.jsonl",
    )
