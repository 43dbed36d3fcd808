"""Tuple trees as programs grow them: who emits, who processed, and the rows that say so. No I/O.

A source makes the first messages (:func:`emit`, :class:`OpenTree`; FsShelter's ``track``), a bolt
processes messages and makes others (:class:`Processing`; ``anchor`` and ``mkAck``). Both give
rows, for whoever sends them: :class:`~acker_redis.sync.bolt.Bolt`, or a program of its own.

A child of several inputs draws one edge id for each of them; the row of an input is its own id XOR
its edges, and the child's id in a tree is the XOR of the edges of its inputs there. So the edges
stand twice in each checksum, once as announced and once as processed, whatever shape the tree has.

An edge is in its row before anybody holds the child's id, and no id is given out once the row has
left: under a lock, as a row that lacks an edge would ack falsely. What goes wrong the other way
round, an id that was given out and never sent, only lets the tree expire.

Ids are read from the system for each message that is processed, and each batch of a source, which
takes about a microsecond. A pool in the process would be faster, and repeat its ids in whatever
copies the process without telling it: a fork in C, a snapshot of the machine.

A message is processed by the process that began it. A fork has it as well, but what it emits would
be in no row of the other one, whose ack would be false: so there it can only be failed.
"""

import os
import struct
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from functools import reduce
from hashlib import blake2b
from operator import xor
from os import getpid
from threading import Lock
from typing import Literal, NamedTuple

from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.rows import FAIL, TOUCH, TRACK, Row
from acker_redis.protocol.texts import check_text, clipped, words
from acker_redis.trees.message_id import MessageId, check_size

DRAWN = 8
"""Ids that are drawn at once for the children of a message."""

_row = tuple.__new__
"""Makes a Row in half the time that its constructor takes."""
_State = Literal["open", "acked", "failed", "acked, then failed"]
_BEFORE: dict[_State, _State] = {
    "open": "open",
    "acked": "open",
    "failed": "open",
    "acked, then failed": "acked",
}


class Emitted(NamedTuple):
    """A tree that begins: its anchor, its TRACK row, and the ids of its first messages."""

    anchor: int
    row: Row
    ids: tuple[MessageId, ...]


def emit(
    source_id: str,
    edges: int = 1,
    *,
    messages: Sized | None = None,
    draw: Callable[[int], list[int]] | None = None,
) -> Emitted:
    """Begin a tree of so many first messages, or of one for each of ``messages``.

    Track first, then send: the row, then each message with its id. With no messages the tree is
    complete at once. ``source_id`` (1 to 255 bytes of UTF-8, no control characters) comes back
    with the verdict. Every attempt is a tree of its own. ``draw`` is where ids come from, if not
    from the system one tree at a time: see :func:`in_bulk`.

    >>> tree = emit("order/1", messages=["to the mill", "to the shop"])
    >>> len(tree.ids), tree.row.text, tree.row.anchor == tree.anchor
    (2, 'order/1', True)
    >>> one, other = tree.ids
    >>> tree.row.delta == one[tree.anchor] ^ other[tree.anchor]
    True

    Raises InvalidBatchError for a source id that cannot be, or less than no messages.
    """
    check_text("source id", source_id, 1)
    if messages is not None:
        edges = len(messages)
    if edges < 0:
        raise InvalidBatchError(f"a tree has no or more first messages, not {edges}")
    anchor, ids, delta = _first_ids(edges, draw or _draw)
    return Emitted(
        anchor,
        Row(anchor, delta, TRACK, source_id),
        tuple([MessageId.trusted({anchor: tuple_id}) for tuple_id in ids]),
    )


class Processing:
    """Messages that are processed together: mostly one, several for a join.

    Says what they caused, and then, once, that they are done. The rows are whole: one for each
    anchor, inputs that share it together. An unanchored input has none. Any thread may use it.

    >>> done = Processing("7:40")
    >>> child = done.emit()
    >>> done.acked() == [Row(7, 40 ^ child[7])]
    True

    Raises InvalidBatchError for an input that is no message id (:meth:`MessageId.of`), or when
    one message is given twice: its rows would cancel.
    """

    __slots__ = ("_begun_in", "_drawn", "_edges", "_keys", "_lock", "_places", "_state", "inputs")

    def __init__(self, *inputs: str | MessageId) -> None:
        if len(inputs) == 1:
            self.inputs: tuple[MessageId, ...] = (MessageId.of(inputs[0]),)
        else:
            self.inputs = tuple([MessageId.of(given) for given in inputs])
            _check_distinct(self.inputs)
        self._edges = [0] * len(inputs)
        """Of each input, the XOR of its edges (Storm's ackVal)."""
        self._drawn: list[int] | None = None
        """Ids for its next children."""
        self._begun_in = getpid()
        self._state: _State = "open"
        self._lock = Lock()
        self._keys: set[str] | None = None
        self._places: dict[MessageId, int] | None = None

    @property
    def open(self) -> bool:
        """Whether it was neither acked nor failed."""
        return self._state == "open"

    @property
    def has_failed(self) -> bool:
        """Whether it was failed, after an ack or without."""
        return self._state in ("failed", "acked, then failed")

    def emit(
        self,
        inputs: str | MessageId | Iterable[str | MessageId] | None = None,
        *,
        key: str | None = None,
    ) -> MessageId:
        """Id of a message that these inputs caused: all of them, or those given.

        Send one message with it, and no other. Anchored to no input, it is unanchored.

        With a ``key`` the id is derived, from the inputs it is anchored to and the key: when the
        same messages are delivered and processed again, the ids are the same again. The key says
        which child it is: its ordinal, or where it goes.

        >>> join = Processing("7:40", "7:41,8:42")
        >>> sorted(join.emit()), sorted(join.emit("7:40")), sorted(join.emit([]))
        ([7, 8], [7], [])
        >>> Processing("7:40").emit(key="mill") == Processing("7:40").emit(key="mill")
        True

        Raises ClosedError when it was acked or failed, or begun in a process of which this is a
        fork; InvalidBatchError for what is no input, for a key that was used, and for a message
        of more than 1638 trees. Nothing is emitted then.
        """
        if inputs is None and key is None and len(self.inputs) == 1 and self.inputs[0]:
            return self._only_child()
        places = range(len(self.inputs)) if inputs is None else self._chosen(inputs)
        return _emit([self], [(self, place) for place in places if self.inputs[place]], key)

    def acked(self) -> list[Row]:
        """They were processed; the rows to send. Closed from here on.

        >>> Processing("7:40").acked()
        [Row(anchor=7, delta=40, flags=0, text='')]

        Raises ClosedError when they were acked or failed before.
        """
        with self._lock:
            self._check_open()
            self._state = "acked"
            if len(self.inputs) != 1:
                return self._rows(0)
            (edges,) = self._edges
            return [_row(Row, (a, id_ ^ edges, 0, "")) for a, id_ in self.inputs[0].items()]

    def failed(self, why: str | BaseException = "") -> list[Row]:
        """They failed, and with them their trees; the rows to send. Closed from here on.

        Whole rows, as a block waits for the messages of its failed trees too; after an ack,
        failures alone. ``why`` is cleaned and cut to what a row can hold, an exception is put
        into :func:`words`.

        >>> Processing("7:40").failed("no such address")
        [Row(anchor=7, delta=40, flags=2, text='no such address')]

        Raises ClosedError when they were failed before.
        """
        text = words(why) if isinstance(why, BaseException) else clipped(why)
        with self._lock:
            if self.has_failed:
                raise ClosedError("this message was failed before")
            whole = self._state == "open"
            self._state = "failed" if whole else "acked, then failed"
            return self._rows(FAIL, text, whole=whole)

    def touched(self) -> list[Row]:
        """More time is needed (Storm's resetTimeout); the rows to send.

        >>> Processing("7:40").touched()
        [Row(anchor=7, delta=0, flags=4, text='')]

        Raises ClosedError when they were acked or failed.
        """
        with self._lock:
            self._check_open()
            return self._rows(TOUCH, whole=False)

    def reopen(self) -> None:
        """The rows of the last acked() or failed() were not taken: all is as it was before.

        >>> done = Processing("7:40")
        >>> rows = done.acked()
        >>> done.reopen()
        >>> done.acked() == rows
        True
        """
        with self._lock:
            self._state = _BEFORE[self._state]

    def _only_child(self) -> MessageId:
        """As :func:`_emit` for one input and no key, which is most: without any detour."""
        with self._lock:
            self._check_open()
            if not self._drawn:
                self._drawn = _draw(DRAWN)
            edge = self._drawn.pop()
            self._edges[0] ^= edge
        return MessageId.trusted(dict.fromkeys(self.inputs[0], edge))

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClosedError(f"this message was {self._state} before")
        if self._begun_in != getpid():
            raise ClosedError(
                "this message belongs to the process that began it, and this one is its fork: what "
                "it emitted would be in no row; fork first, or hand the message's id on"
            )

    def _rows(self, flags: int, text: str = "", *, whole: bool = True) -> list[Row]:
        deltas: dict[int, int] = {}
        for message_id, edges in zip(self.inputs, self._edges, strict=True):
            for anchor, tuple_id in message_id.items():
                own = tuple_id ^ edges if whole else 0
                deltas[anchor] = deltas.get(anchor, 0) ^ own
        return [Row(anchor, delta, flags, text) for anchor, delta in deltas.items()]

    def _chosen(self, inputs: str | MessageId | Iterable[str | MessageId]) -> list[int]:
        """Places of the inputs that were given."""
        # Iterated, a text would be taken for its characters, and an id for its anchors.
        several = (inputs,) if isinstance(inputs, str | MessageId) else inputs
        chosen = [MessageId.of(given) for given in several]
        _check_distinct(chosen)
        if self._places is None:
            self._places = {message_id: place for place, message_id in enumerate(self.inputs)}
        try:
            return [self._places[message_id] for message_id in chosen]
        except KeyError as error:
            raise InvalidBatchError(f"{error.args[0]!r} is not processed here") from None

    def _give(self, place: int, edge: int) -> None:
        with self._lock:
            self._check_open()
            self._edges[place] ^= edge

    def _claim(self, key: str) -> None:
        with self._lock:
            if self._keys is None:
                self._keys = set()
            if key in self._keys:
                raise InvalidBatchError(f"key {key!r} was used for another message")
            self._keys.add(key)

    def _disclaim(self, key: str | None) -> None:
        with self._lock:
            if self._keys is not None and key is not None:
                self._keys.discard(key)


class OpenTree(Processing):
    """A tree whose source finds its first messages one by one.

    Until it is closed it counts as a message of its own, so it cannot be complete before. Track
    first: send ``opening``, then the messages with their ids, then the row of :meth:`close`.

    >>> tree = OpenTree("file/1")
    >>> first, second = tree.emit(), tree.emit()
    >>> (closing,) = tree.close()
    >>> tree.opening.delta ^ closing.delta == first[tree.anchor] ^ second[tree.anchor]
    True

    Raises InvalidBatchError for a source id that cannot be.
    """

    __slots__ = ("anchor", "opening")

    def __init__(self, source_id: str) -> None:
        check_text("source id", source_id, 1)
        self.anchor = new_anchor()
        """Its id, in the verdict too."""
        (handle,) = _draw(1)
        self.opening = Row(self.anchor, handle, TRACK, source_id)
        """The row that tracks it."""
        super().__init__(MessageId.trusted({self.anchor: handle}))

    def close(self) -> list[Row]:
        """There are no more messages; the row to send. ClosedError if it was closed or failed.

        >>> tree = OpenTree("an empty file")
        >>> tree.close()[0].delta == tree.opening.delta
        True
        """
        return self.acked()

    def fail(self, why: str | BaseException = "") -> list[Row]:
        """The source gives up; the row to send. ClosedError if it was failed before.

        >>> OpenTree("file/1").fail("unreadable")[0].text
        'unreadable'
        """
        return self.failed(why)


def emit_from(*processings: Processing, key: str | None = None) -> MessageId:
    """Id of a message that several processings caused, each of which is acked by itself.

    So a window emits: it holds a :class:`Processing` for each of its messages. The key is as in
    :meth:`Processing.emit`.

    >>> window = [Processing("7:40"), Processing("7:41")]
    >>> child = emit_from(*window)
    >>> rows = [row for message in window for row in message.acked()]
    >>> rows[0].delta ^ rows[1].delta == 40 ^ 41 ^ child[7]
    True

    Raises ClosedError when one of them was acked or failed; InvalidBatchError when one message is
    among them twice, and as :meth:`Processing.emit` does. Nothing is emitted then.
    """
    _check_distinct([given for one in processings for given in one.inputs])
    parents = [
        (one, place) for one in processings for place, given in enumerate(one.inputs) if given
    ]
    return _emit(processings, parents, key)


def _emit(
    ones: Sequence[Processing], parents: Sequence[tuple[Processing, int]], key: str | None
) -> MessageId:
    """Give each parent, one input at its place, an edge; return the id that they make."""
    for one in ones:
        one._check_open()
    edges, ids = _child([one.inputs[place] for one, place in parents], key)
    claimed: list[Processing] = []
    given = []
    try:
        if key is not None:
            for one in ones:
                one._claim(key)
                claimed.append(one)
        for (one, place), edge in zip(parents, edges, strict=True):
            one._give(place, edge)
            given.append((one, place, edge))
    except (ClosedError, InvalidBatchError):
        for one in claimed:
            one._disclaim(key)
        for one, place, edge in given:
            # Taken back, or else in a row that has left: that tree will expire.
            with suppress(ClosedError):
                one._give(place, edge)
        raise
    return MessageId.trusted(ids)


def _child(inputs: Sequence[MessageId], key: str | None) -> tuple[list[int], dict[int, int]]:
    """An edge for each input, and the ids of the child that they make."""
    attempt = 0
    while True:
        edges = _draw(len(inputs)) if key is None else _derived(inputs, key, attempt)
        ids: dict[int, int] = {}
        for message_id, edge in zip(inputs, edges, strict=True):
            for anchor in message_id:
                ids[anchor] = ids.get(anchor, 0) ^ edge
        if all(ids.values()):
            return edges, check_size(ids)
        attempt += 1  # two edges cancel, once in 2^63


def _first_ids(count: int, draw: Callable[[int], list[int]]) -> tuple[int, list[int], int]:
    """An anchor, distinct ids, and their XOR, which is zero for none only."""
    while True:
        drawn, *ids = draw(count + 1)
        anchor, delta = drawn >> 1, reduce(xor, ids, 0)
        if anchor and (count < 2 or len(set(ids)) == count) and (delta or not count):
            return anchor, ids, delta


def in_bulk() -> Callable[[int], list[int]]:
    """Ids for many trees that are emitted at once; to be thrown away with the last of them.

    >>> draw = in_bulk()
    >>> trees = [emit(source_id, draw=draw) for source_id in ("order-1", "order-2")]
    >>> len({tree.anchor for tree in trees})
    2
    """
    left: list[int] = []

    def draw(count: int) -> list[int]:
        if len(left) < count:
            left[:] = _draw(max(512, count))
        drawn = left[-count:]
        del left[-count:]
        return drawn

    return draw


def _draw(count: int) -> list[int]:
    """So many ids, each 1 .. 2^63-1, from the system's random source (fork-safe)."""
    while True:
        ids = [raw >> 1 for raw in struct.unpack(f"{count}Q", os.urandom(8 * count))]
        if all(ids):
            return ids


def _derived(inputs: Sequence[MessageId], key: str, attempt: int) -> list[int]:
    """An edge for each input: 63 bits of BLAKE2b, the same for the same inputs and key.

    All inputs go into each edge: a message that is joined with others the second time is another
    child, and must not share an edge with the first.
    """
    texts = [str(message_id) for message_id in inputs]
    parts = [key, str(attempt), *sorted(texts)]
    base = blake2b(digest_size=8)
    for part in (data.encode(errors="surrogatepass") for data in parts):
        base.update(b"%d:%b" % (len(part), part))
    edges = []
    for text in texts:
        own = base.copy()
        own.update(text.encode())
        edges.append(int.from_bytes(own.digest(), "big") >> 1)
    return edges


def _check_distinct(inputs: Iterable[MessageId]) -> None:
    seen: set[tuple[int, int]] = set()
    for pair in (pair for message_id in inputs for pair in message_id.items()):
        if pair in seen:
            raise InvalidBatchError(f"message {pair[0]}:{pair[1]} is given twice")
        seen.add(pair)
