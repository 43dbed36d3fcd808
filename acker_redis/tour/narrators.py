"""How the steps of the tour tell what happens: order by order, or message by message."""

from collections.abc import Sequence

from rich.text import Text

from acker_redis.protocol.config import AckerConfig
from acker_redis.tour.book import Book, Tree
from acker_redis.tour.pipeline import ATTEMPTS, Done
from acker_redis.tour.screen import Screen, colour_of, hexadecimal, listed

WRONG = "bold red"


class Narrator:
    """Prints a line for each event; the table below has the checksums.

    With ``brief`` the messages of an order that a bolt acks have one line, after the last.
    """

    pace = 0.15
    """Seconds that a reader gets for an event."""
    reading = 0.5
    """Seconds that a reader gets for a verdict."""

    def __init__(self, screen: Screen, book: Book, *, brief: bool = False) -> None:
        self._screen, self._book, self._brief = screen, book, brief

    def tracked(self, trees: Sequence[Tree]) -> None:
        """Tell which orders the source has tracked and sent."""
        first = [tree.order.id for tree in trees if tree.attempt == 1]
        if first:
            self._screen.event("source", f"sends {listed(first)}")
        for tree in trees:
            if tree.attempt > 1:
                words = f"sends {tree.order.id} again: attempt {tree.attempt}, a new tree, new ids"
                self._screen.event("source", words)

    def done(self, done: Done) -> None:
        """Tell how a bolt processed a message; Redis has applied its row."""
        message, name, order = done.message, done.message.name, done.message.order
        actor, style = message.to, "bold"
        if done.how == "emitted":
            total = sum(each.price for each in done.emitted)
            words = f"emits {listed([each.name for each in done.emitted])}; £{total} in all"
        elif done.how == "failed":
            words, style = f"fails the {name}: no such address", WRONG
        elif done.how == "lost":
            words, style = f"crashes with the {name} in memory, and restarts without it", WRONG
        elif done.how == "repeated":
            words = f"acks the {name}, which it has shipped before"
        elif not self._brief:
            words = f"ships and acks the {name}"
        elif self._book.tree(message.anchor).open:
            return
        else:
            words = f"ships and acks {listed(order.items)}"
        self._screen.event(actor, f"{order.id}: {words}", style)

    def ended(self, tree: Tree) -> None:
        """Explain the verdict of a tree in one sentence."""
        self._screen.verdict(tree, _explained(tree))

    def stuck(self, tree: Tree) -> None:
        """Tell the checksum of a tree of which a message was lost."""
        for name in tree.open:
            words = Text.assemble(
                f"{tree.order.id} is open: checksum ",
                (hexadecimal(tree.checksum), colour_of(tree, name)),
                f" is the id of the {name}.",
            )
            self._screen.event("Redis", words)
        self._screen.pause(self.reading)

    def starts(self, config: AckerConfig) -> None:
        """Tell that a rotator starts, and how often it ticks."""
        here, usual = config.tick_ms / 1000, AckerConfig().tick_ms / 1000
        words = (
            f"starts. It ticks every {here:g} s here, every {usual:g} s by default. A tree may "
            f"live for {config.buckets} ticks at most."
        )
        self._screen.event("rotator", words)

    def ticked(self, tree: Tree) -> None:
        """Tell that a tree has become older by a tick."""
        ticks = f"{tree.bucket} tick{'s' * (tree.bucket > 1)}"
        self._screen.event("rotator", f"ticks: {tree.order.id} is {ticks} old, nothing has changed")


class MessageNarrator(Narrator):
    """A column of ids: each as it enters the checksum, and the checksum that Redis then has."""

    pace = 0.5
    reading = 1.0

    def tracked(self, trees: Sequence[Tree]) -> None:
        """Show the first message of each tree."""
        for tree in trees:
            for name, tuple_id in tree.open.items():
                self._line("source", tree, "emits", name, tuple_id, total=True)

    def done(self, done: Done) -> None:
        """Show the messages that a bolt emitted, and the message that it acked."""
        message, tree = done.message, self._book.tree(done.message.anchor)
        actor = message.to
        for each in done.emitted:
            self._line(actor, tree, "emits", each.name, each.tuple_id)
            actor = ""
        self._line(actor, tree, "acks", message.name, message.tuple_id, total=True)
        if not tree.open:
            id_ = (hexadecimal(message.tuple_id), colour_of(tree, message.name))
            words = Text.assemble("Each id is there twice, and ", id_, " XOR itself is 0.")
            self._screen.event("", words)

    def _line(
        self, actor: str, tree: Tree, verb: str, name: str, tuple_id: int, *, total: bool = False
    ) -> None:
        colour = colour_of(tree, name)
        words = Text.assemble(
            f"{verb:6}", (f"{name:6}", colour), "  XOR ", (hexadecimal(tuple_id), colour)
        )
        if total:
            words.append(f"  =  {hexadecimal(tree.checksum)}", "bold")
        self._screen.event(actor, words)


def _explained(tree: Tree) -> str:
    order, messages = tree.order.id, len(tree.order.items) + 1
    if tree.verdict == "ack" and tree.attempt == 1:
        return f"{order} is done: its checksum is zero, so all {messages} messages were acked."
    if tree.verdict == "ack":
        return f"{order} is done at attempt {tree.attempt}: nothing is lost or shipped twice."
    if tree.reason == "expired":
        return (
            f"{order} expired: no bolt reported an error, but the checksum was not zero in time, "
            "so the source will send the order again."
        )
    if tree.attempt < ATTEMPTS:
        return f"{order} failed ({tree.why}): the source is notified at once."
    return (
        f"{order} failed again: after {ATTEMPTS} attempts the source puts it with the dead "
        "letters, for a person to look at."
    )
