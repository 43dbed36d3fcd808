"""Commands for a shell that acts as a source or a bolt: track, ack, fail, touch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker_redis.cli import options
from acker_redis.cli.lines import chunks
from acker_redis.cli.options import AsJson, Namespace, Source, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn
from acker_redis.errors import AckerError
from acker_redis.protocol.rows import TOUCH

if TYPE_CHECKING:
    from acker_redis.batching.batch import Batch
    from acker_redis.batching.sent import Applied
    from acker_redis.protocol.rows import Row
    from acker_redis.sync.client import Acker
    from acker_redis.trees.processing import Processing

LINES = 256
"""Maximum lines, and rows, per batch: a message of more trees gets separate batches."""

LOOKED = 16
"""Trees of a message that are looked up, so that one that is not pending is reported."""

Messages = Annotated[
    list[str],
    typer.Argument(
        help="Message ids ANCHOR:TUPLE[,ANCHOR:TUPLE...]; - reads one per line of stdin"
    ),
]


def track(
    namespace: Namespace,
    source: Source,
    source_ids: Annotated[
        list[str], typer.Argument(help="Source ids; - reads one per line of stdin")
    ],
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=0, help="Number of first messages per tree")
    ] = 1,
    edge: Annotated[str, typer.Option(help="Edge of the first messages, mostly their queue")] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Track a tuple tree for each source id, and print the ids of its first messages.

    Each line is one tree: the source id and its message ids, separated by tabs. Send each id with
    its message, for example in a field or in the header acker-tuple: the bolt that processes the
    message acks the id. Send a message only after its line was printed.

    Exit code 3 if trees were rejected because too many are pending. A rejected tree has no line,
    and its nack waits for the source.
    """
    from acker_redis.batching.batch import Batch
    from acker_redis.protocol.keys import check_name
    from acker_redis.trees.processing import emit

    check_name("source", source)
    rejected = 0
    with options.acker(namespace, url) as acker:
        _check_edges(acker, [edge])
        make = partial(emit, messages=messages, edge=edge, ids=acker.ids)
        for lines in _input(source_ids):
            trees = [_at(number, make, text) for number, text in lines]
            for start in range(0, len(trees), LINES):
                part = trees[start : start + LINES]
                batch = Batch(source)
                for tree in part:
                    batch.add(tree.row)
                applied = acker.apply(batch)
                refused = set(applied.rejected)
                if applied.repeated:
                    # The reply that named the rejected trees was lost.
                    refused |= {t.anchor for t in part if t.ids and not acker.show(t.anchor)}
                for tree in part:
                    if tree.anchor in refused:
                        rejected += 1
                        warn(f"rejected, too many trees are pending: {tree.row.text}")
                    elif as_json:
                        ids = [str(each) for each in tree.ids]
                        anchor, source_id = str(tree.anchor), tree.row.text
                        say_json({"source_id": source_id, "anchor": anchor, "messages": ids}, False)
                    else:
                        say("\t".join([tree.row.text, *map(str, tree.ids)]))
    if rejected:
        raise typer.Exit(Exit.REJECTED)


def ack(
    namespace: Namespace,
    messages: Messages,
    emit: Annotated[
        int, typer.Option("--emit", "-n", min=0, help="Number of new messages, besides --child")
    ] = 0,
    child: Annotated[
        list[str] | None,
        typer.Option(
            "--child",
            "-c",
            help="Name of a new message; processing the message again gives it the same id",
        ),
    ] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option(
            help="Edge of the new messages, mostly their queue: once for all of them, or once for "
            "each, in the order in which their ids are printed"
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ack a message that was processed, and print the ids of the new messages it caused.

    Several messages on the command line were processed together, as in a join: the new messages
    belong to all their trees. On stdin each line is a separate processing.

    Each line is one processing: the ids of its new messages, separated by tabs, first those of
    --child, then those of --emit. Send the new messages only after their line was printed.

    --edge names the edge on which a new message travels. It is given once for all new messages, or
    once for each: --emit 2 --edge mill --edge shop. An empty name stands for no edge; a name that
    the namespace does not list is refused.

    A tree that is not pending is reported, if its message is an argument: it has ended, or it is
    not tracked yet. That is no error: a message may be processed after its tree has expired.
    """
    children: list[str | None] = [*(child or ()), *(None for _ in range(emit))]
    named = edge or [""]
    edges = named * len(children) if len(named) == 1 else named
    if len(edges) != len(children) or (edge and not children):
        raise typer.BadParameter(
            f"--edge is given {len(named)} times for {len(children)} new messages; give it once "
            "for all of them, or once for each"
        )

    def done(processing: Processing) -> tuple[list[Row], list[str]]:
        new = zip(children, edges, strict=True)
        ids = [str(processing.emit(key=key, edge=name)) for key, name in new]
        return processing.acked(), ids

    _process(namespace, messages, url, as_json, done, bool(children), named)


def fail(
    namespace: Namespace,
    messages: Messages,
    why: Annotated[
        str, typer.Option("--why", "-w", help="Reason, for the source; up to 255 bytes")
    ] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Fail a message that could not be processed: its trees are nacked at once.

    A tree that is not pending is reported, as by ack.
    """
    _process(namespace, messages, url, as_json, lambda each: (each.failed(why), []), False)


def touch(
    namespace: Namespace, messages: Messages, url: Url = None, as_json: AsJson = False
) -> None:
    """Touch a message that takes longer: reset the timeout of its trees.

    A tree that is not pending is reported, as by ack.
    """
    _process(namespace, messages, url, as_json, lambda each: (each.touched(), []), False)


def _process(
    namespace: str,
    messages: list[str],
    url: str | None,
    as_json: bool,
    rows_of: Callable[[Processing], tuple[list[Row], list[str]]],
    lines_out: bool,
    edges: Iterable[str] = (),
) -> None:
    from acker_redis.trees.processing import Processing

    with options.acker(namespace, url) as acker:
        _check_edges(acker, edges)
        begin = partial(Processing, ids=lambda: acker.ids)
        if messages != ["-"]:
            done = rows_of(begin(*messages))
            _warn_of_ended(acker, (row.anchor for row in done[0]))
            _send(acker, [done], as_json, lines_out)
            return
        for lines in _input(messages):
            # Reject a message that occurs twice: by XOR its two acks would cancel each other.
            Processing(*(text for _, text in lines))
            all_done = [_at(n, lambda t: rows_of(begin(t)), text) for n, text in lines]
            _send(acker, all_done, as_json, lines_out)


def _warn_of_ended(acker: Acker, anchors: Iterable[int]) -> None:
    ended = []
    for anchor in islice(anchors, LOOKED):
        with suppress(AckerError):  # a tree that cannot be shown may be acked
            tree = acker.show(anchor)
            if not tree or not tree.source:
                ended.append(str(anchor))
    if ended:
        warn(f"not pending in {acker.namespace} (ended, or not tracked yet): {', '.join(ended)}")


def _check_edges(acker: Acker, named: Iterable[str]) -> None:
    """Refuse a misspelt edge before anything is sent.

    A namespace without edges ignores the names, so that one script serves every namespace.
    """
    known = acker.ids.edges
    for edge in named:
        if edge and known and edge not in known:
            raise typer.BadParameter(
                f"{acker.namespace} has no edge {edge!r}; it has {', '.join(known)}"
            )


def _send(
    acker: Acker, done: list[tuple[list[Row], list[str]]], as_json: bool, lines_out: bool
) -> None:
    """Apply whole processings in batches; print the new ids of each after it was applied."""
    from acker_redis.batching.batch import Batch

    batch, waiting, totals = Batch(), list[list[str]](), {"acked": 0, "failed": 0}

    def count(applied: Applied) -> None:
        totals["acked"] += applied.acked
        totals["failed"] += applied.failed

    def flush() -> None:
        nonlocal batch, waiting
        if batch:
            count(acker.apply(batch))
        for ids in waiting:
            if lines_out and as_json:
                say_json({"messages": ids}, False)
            elif lines_out:
                say("\t".join(ids))
        batch, waiting = Batch(), []

    for rows, ids in done:
        if batch and len(batch) + len(rows) > LINES:
            flush()
        if len(rows) > LINES:
            for applied in _apply_large(acker, rows):
                count(applied)
            waiting.append(ids)
            flush()  # it was applied, so its ids are printed even if a later batch fails
            continue
        for row in rows:
            batch.add(row)
        waiting.append(ids)
    flush()
    if as_json and not lines_out:
        say_json(totals, False)


def _apply_large(acker: Acker, rows: list[Row]) -> Iterator[Applied]:
    """Apply the rows of one processing in several batches, all whole rows.

    A retry of the command after an error sends the same batches. Each batch of an ack or a failure
    has a lane named by the hash of its content, and one part per shard. So Redis applies the batch
    once while the fence holds (N-1 ticks). A touch is applied each time.
    """
    from acker_redis.flows.lane import Lane

    batches = large_batches(rows)
    for number, batch in enumerate(batches):
        lane = Lane(threading.Lock)
        if rows[0].flags != TOUCH:
            lane.name = (
                "content:" + blake2b(repr(batch.rows()).encode(), digest_size=16).hexdigest()
            )
        try:
            yield acker.apply(batch, lane)
        except AckerError as error:
            raise type(error)(
                f"{error}; {number} of {len(batches)} batches of this message were applied; run "
                "the command again at once for this message: without --emit no row is applied "
                "twice; with --emit its trees expire"
            ) from error


def large_batches(rows: list[Row]) -> list[Batch]:
    """Return the rows of one processing in batches with at most one part per shard."""
    from acker_redis.batching.batch import Batch
    from acker_redis.protocol.blocks import MAX_BLOCKS
    from acker_redis.protocol.ids import split_anchor

    batches, blocks = list[Batch](), set[int]()
    # Loose rows first, then block by block: the two kinds are separate parts.
    for row in sorted(rows):
        place = split_anchor(row.anchor)
        first = place is not None and not blocks
        if place:
            blocks.add(place[0])
        if not batches or first or len(blocks) > MAX_BLOCKS or not batches[-1].add(row):
            batches.append(Batch())
            batches[-1].add(row)
            blocks = {place[0]} if place else set()
    return batches


def _input(arguments: list[str]) -> Iterator[list[tuple[int, str]]]:
    """Yield the arguments, or the lines of each read of stdin, with their numbers."""
    if arguments == ["-"]:
        yield from chunks()
    else:
        yield list(enumerate(arguments, 1))


def _at(number: int, make: Callable[..., Any], *args: Any) -> Any:
    """Call ``make``; add the number of the input to its error."""
    try:
        return make(*args)
    except AckerError as error:
        raise type(error)(
            f"input {number}: {error}; it was not applied, nor the inputs read with it or after it"
        ) from None


PANEL = "Source and bolt in a shell"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(
        app,
        PANEL,
        track,
        "track orders shop order-17",
        "track orders shop order-17 --edge mill",
        "track orders shop - < ids.txt",
    )
    add(
        app,
        PANEL,
        ack,
        "ack orders 4711:815",
        "ack orders 4711:815 --emit 2",
        "ack orders 4711:815 --emit 2 --edge mill --edge shop",
    )
    add(app, PANEL, fail, "fail orders 4711:815 --why 'no such address'")
    add(app, PANEL, touch, "touch orders 4711:815")
