"""Progress of a reshard, on stderr."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from acker_redis.ops.reshard import Progress

STEPS = {
    "close": "closing the namespace for new trees",
    "drain": "waiting for {pending:,} pending trees and for verdicts of removed shards: {verdicts}",
    "switch": "switching all shards to the new number of shards",
    "open": "reopening the namespace",
    "done": "done",
}


@contextlib.contextmanager
def follow() -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: one line on a terminal, else a line per step."""
    console = Console(stderr=True, highlight=False)
    try:
        with _line(console) as tell:
            yield tell
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", ()):
            console.print(note)
        raise


@contextlib.contextmanager
def _line(console: Console) -> Iterator[Callable[[Progress], None]]:
    if not console.is_terminal:
        last = [""]

        def tell(progress: Progress) -> None:
            if last[0] != progress.step:
                last[0] = progress.step
                console.print(words(progress))

        yield tell
        return
    with console.status("") as status:
        yield lambda progress: status.update(words(progress))


def words(progress: Progress) -> str:
    """Return the progress as a line of text."""
    waiting = sorted(progress.backlog.items(), key=lambda item: -item[1])
    sources = ", ".join(f"{count:,} for {source}" for source, count in waiting[:3])
    more = f" and for {len(waiting) - 3} more" if len(waiting) > 3 else ""
    pending = progress.pending + progress.expiring
    return STEPS[progress.step].format(pending=pending, verdicts=f"{sources}{more}" or "none")
