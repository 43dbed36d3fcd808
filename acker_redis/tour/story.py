"""The steps of the tour, in order, and their texts.

Nothing is pending between two steps, and no rotator runs while bolts work. So a reader may stop at
any step, and a slow machine expires no tree but the tree that the tour is about.
"""

from collections.abc import Callable

from rich.text import Text

from acker_redis.embedded.server import EmbeddedRedis
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.tour import check
from acker_redis.tour.book import Book
from acker_redis.tour.narrators import MessageNarrator, Narrator
from acker_redis.tour.orders import ORDERS
from acker_redis.tour.pipeline import Pipeline
from acker_redis.tour.playing import Player
from acker_redis.tour.screen import Screen, listed, new_table

NAMESPACE = "tour"
CONFIG = AckerConfig(tick_ms=1000)
PICTURE = """\

  source shop ──order──▶ bolt price ──item──▶ bolt ship
    │      ▲                 │                    │
  track  verdict            ack              ack or fail
    ▼      │                 ▼                    ▼
  Redis: one record, with one checksum, for each order ◀──tick── rotator
"""
NEXT = (
    ("docs/tutorials/first-ten-minutes.md", "write your first source and bolt"),
    ("make demo", "account for 27,004 flights; needs Java 17"),
    ("acker-redis create orders", "begin on your own Redis"),
)


class Story:
    """The tour on one server."""

    def __init__(self, screen: Screen, server: EmbeddedRedis, acker: Acker) -> None:
        self._screen, self._server, self._acker = screen, server, acker
        self._book = Book(acker)
        self._pipeline = Pipeline(acker, self._book)
        self._player = Player(screen, acker, self._book, self._pipeline)
        self._right = False

    def tell(self) -> bool:
        """Play all steps; return whether all came as the script of the tour calls for."""
        steps: list[tuple[str, Callable[[], None]]] = [
            ("The pipeline", self._introduce),
            ("One order, message by message", self._follow),
            ("A bolt fails an order", self._fail),
            ("A bolt loses a message and does not notice", self._lose),
            ("The count", self._sum_up),
        ]
        self._acker.create(CONFIG)
        with self._pipeline:
            for number, (title, step) in enumerate(steps, 1):
                if number > 1:
                    self._screen.between()
                self._screen.heading(title, number, len(steps))
                step()
        return self._right

    def _introduce(self) -> None:
        self._screen.say(
            f"A shop sends {len(ORDERS)} orders through two bolts and must not lose one. One order "
            "will fail, and one message will vanish. The source will be notified of both."
        )
        self._screen.show(Text(PICTURE))
        self._screen.say(
            f"All of this is real: {self._server.description} runs at {self._server.url} "
            "until the tour ends."
        )
        self._screen.pause(1.0)

    def _follow(self) -> None:
        order = ORDERS[0]
        self._screen.say(
            f"{order.id} is a {' and a '.join(order.items)}. Each message gets a random id. Redis "
            "keeps one number for the order, its checksum: the XOR of these ids."
        )
        with self._screen.trees(self._book):
            self._player.emit([order])
            self._player.settle(MessageNarrator(self._screen, self._book))

    def _fail(self) -> None:
        orders = ORDERS[1:4]
        self._screen.say(
            f"Now {listed([order.id for order in orders])}, each with its own checksum. The "
            f"address of {orders[1].id} does not exist, and the bolt ship reports that."
        )
        with self._screen.trees(self._book):
            self._player.emit(orders)
            self._player.settle(Narrator(self._screen, self._book, brief=True))

    def _lose(self) -> None:
        order, narrator = ORDERS[4], Narrator(self._screen, self._book)
        self._screen.say(
            f"Last comes {order.id}. The bolt ship will crash with one of its messages in memory: "
            "no ack, no failure, no line in a log."
        )
        with self._screen.trees(self._book):
            self._player.emit([order])
            self._player.settle(narrator)
            self._player.expire(narrator)
            self._player.settle(narrator)

    def _sum_up(self) -> None:
        trees, effects = check.trees(self._acker), check.effects(self._book, self._pipeline)
        self._screen.say(
            "Redis counts trees: two orders had two trees each, one per attempt. The tour counts "
            "items, dead letters, and checksums that were not the XOR of the open messages.\n"
        )
        table = new_table("", "counted", "called for")
        for count in (*trees, *effects):
            style = "" if count.right else "bold red"
            table.add_row(count.what, str(count.found), str(count.wanted), style=style)
        for column in table.columns[1:]:
            column.justify = "right"
        self._screen.show(table)
        tracked, *verdicts = (f"{count.found} {count.what}" for count in trees[:4])
        self._screen.say(f"\n{tracked} = {' + '.join(verdicts)}", "bold")
        self._right = all(count.right for count in (*trees, *effects))
        if self._right:
            dead = " and ".join(self._pipeline.dead_letters)
            self._screen.say(f"Every order is accounted for, and only {dead} needs a person.")
            self._go_on()
        else:
            self._screen.say(
                "These are not the counts that the tour calls for. Please report it, with all "
                "that was printed.",
                "bold red",
            )

    def _go_on(self) -> None:
        self._screen.heading("How to go on")
        width = max(len(what) for what, _ in NEXT)
        for what, why in NEXT:
            self._screen.show(Text.assemble((f"{what:{width}}", "bold cyan"), f"  {why}"))
