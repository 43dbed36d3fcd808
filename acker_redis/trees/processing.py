"""Emit and ack in a program: the ids of messages, and the rows that record them. No I/O.

A source makes the first messages (:func:`emit`, :class:`OpenTree`; FsShelter's ``track``). A bolt
processes messages and emits others (:class:`Processing`; FsShelter's ``anchor`` and ``mkAck``).
Both return rows, which :class:`~acker_redis.sync.bolt.Bolt` or the program sends.

**Checksum.** A child of several inputs draws one edge id per input. The row of an input is its own
id XOR its edges. The child's id in a tree is the XOR of the edges of its inputs in that tree. So
each edge occurs twice in the checksum: once when announced, once when processed. That holds for
every shape of the tree.

**Invariant.** An edge is in the row of its input before the caller receives the child's id, and no
id is given out after the row was returned. A lock ensures both, because a row without one of its
edges would cause a false ack. The opposite case is safe: if an id was given out but its message
never sent, the tree expires.

**Edges.** In a namespace with named edges each id carries the code of the edge that its message
travels on. Of the edge ids of a child, exactly one carries the code in each tree: that of the input
with the least id in that tree. So the child's id has the code once, and the XOR of all rows is as
before.

**Random ids.** Ids are read from the operating system for each processed message, and for each
batch of a source, which takes about a microsecond. A pool of ids in the process would be faster,
but would repeat its ids in a copy of the process that Python does not notice: a fork in C, or a
snapshot of the machine.

**State.** A Processing is its rows: for each tree the XOR of the ids of its messages and of their
children. To emit is to XOR the child's edge into each row; to ack is to return the rows.

**Forks.** Only the process that began a message may emit from it or ack it. A forked child has a
copy of the Processing, but the parent's rows would not contain the edges that the child emits, so
the parent's ack would be false. In the child the message can only be failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from functools import reduce
from operator import index, xor
from threading import Lock
from typing import Literal, NamedTuple, SupportsIndex

from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.id_maker import draw as draw_ids
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.rows import FAIL, TOUCH, TRACK, Row
from acker_redis.protocol.texts import check_text, clipped, words
from acker_redis.trees import process
from acker_redis.trees.message_id import AnyId, MessageId, check_size, parse_ids

DRAWN = 4
"""Number of ids that are drawn at once for the children of a message."""

_row = tuple.__new__
"""Creates a Row in half the time of its constructor."""
Ids = IdMaker | Callable[[], IdMaker]
_State = Literal["open", "acked", "failed", "acked, then failed"]
_BEFORE: dict[_State, _State] = {
    "open": "open",
    "acked": "open",
    "failed": "open",
    "acked, then failed": "acked",
}


class Emitted(NamedTuple):
    """A new tree: its anchor, its TRACK row, and the ids of its first messages."""

    anchor: int
    row: Row
    ids: tuple[MessageId, ...]


def emit(
    source_id: str,
    messages: SupportsIndex | Sized = 1,
    *,
    edge: str = "",
    ids: IdMaker = PLAIN,
    draw: Callable[[int], list[int]] | None = None,
) -> Emitted:
    """Return a new tree with its first messages.

    Track first, then send: apply ``row``, then send each message with its id. With no messages the
    tree is complete at once. Every attempt of a record is a separate tree.

    Args:
        source_id: The source's id of the record, 1 to 255 bytes of UTF-8 without control
            characters. The verdict carries it.
        messages: The first messages, or their number, 0 or more.
        edge: The name of the edge that the messages travel on.
        ids: Makes the ids; in a namespace with edges ``acker.ids``.
        draw: A faster source of random ids, for many trees at once: see :func:`in_bulk`.

    Raises:
        InvalidBatchError: The source id is invalid, the number of messages is negative, or
            ``messages`` is one message.

    Examples:
        >>> tree = emit("order/1", messages=["to the mill", "to the shop"])
        >>> len(tree.ids), tree.row.text, tree.row.anchor == tree.anchor
        (2, 'order/1', True)
        >>> one, other = tree.ids
        >>> tree.row.delta == one[tree.anchor] ^ other[tree.anchor]
        True

    """
    check_text("source id", source_id, 1)
    count = messages if isinstance(messages, int) else _count(messages)
    if count < 0:
        raise InvalidBatchError(f"messages is a number of messages, at least 0, not {count}")
    anchor, delta, sent = first_messages(count, edge, ids, draw or draw_ids)
    return Emitted(anchor, Row(anchor, delta, TRACK, source_id), sent)


def first_messages(
    count: int, edge: str, ids: IdMaker, draw: Callable[[int], list[int]]
) -> tuple[int, int, tuple[MessageId, ...]]:
    """Return the anchor of a new tree, its delta, and the ids of its first messages."""
    anchor, drawn, delta = _first_ids(count, draw, ids.low)
    if edge and (code := ids.code(edge)):
        drawn = [tuple_id | code for tuple_id in drawn]
        delta ^= code if count % 2 else 0
    return anchor, delta, tuple([MessageId.trusted({anchor: tuple_id}) for tuple_id in drawn])


def _count(messages: SupportsIndex | Sized) -> int:
    if isinstance(messages, str | bytes):
        raise InvalidBatchError("messages is a list of messages or their number, not one message")
    return len(messages) if isinstance(messages, Sized) else index(messages)


class Processing:
    """Messages that are processed together: usually one, several for a join.

    Emit the children first. Then ack or fail, once, and send the returned rows. The rows are whole:
    one row per anchor, which covers all inputs that share the anchor. An unanchored input has no
    row. Thread-safe.

    Args:
        *inputs: The ids of the messages, as MessageId, text or bytes.
        ids: Makes the ids of the children; in a namespace with edges, and for ``key=``,
            ``acker.ids``. A function that returns it is called when the first id is needed.

    Raises:
        InvalidBatchError: An input is no message id (:meth:`MessageId.of`), or a message is given
            twice: its ids would cancel in the checksum.

    Examples:
        >>> done = Processing("7:40")
        >>> child = done.emit()
        >>> done.acked() == [Row(7, 40 ^ child[7])]
        True

    """

    __slots__ = (
        "_begun_in", "_deltas", "_drawn", "_ids", "_inputs", "_keys", "_lock", "_maker", "_state",
        "_tried",
    )  # fmt: skip

    def __init__(self, *inputs: AnyId, ids: Ids = PLAIN) -> None:
        self._inputs: tuple[AnyId, ...] = inputs
        if len(inputs) == 1 and isinstance(inputs[0], str | bytes):
            self._deltas: dict[int, int] = parse_ids(inputs[0])
        else:
            self._inputs = messages = tuple([MessageId.of(given) for given in inputs])
            if len(messages) > 1:
                _check_distinct(messages)
            self._deltas = _xor({}, *messages)
        """For each tree, the id of the message XOR those of its children: its row so far."""
        self._ids = ids
        self._maker: IdMaker | None = None
        """Who made the first id, if the configuration was known then."""
        self._drawn: list[int] | None = None
        """Unused random ids for the next children."""
        self._begun_in = process.forks
        self._state: _State = "open"
        self._tried = False
        """Whether an ack or a failure was tried."""
        self._lock = Lock()
        self._keys: set[str] | None = None

    @property
    def inputs(self) -> tuple[MessageId, ...]:
        """The ids of the messages, as they were given."""
        return tuple([MessageId.of(given) for given in self._inputs])

    @property
    def anchored(self) -> bool:
        """Whether a message belongs to a tree."""
        return bool(self._deltas)

    @property
    def open(self) -> bool:
        """Whether the messages were neither acked nor failed."""
        return self._state == "open"

    @property
    def forgotten(self) -> bool:
        """Whether no attempt was made to ack or fail them, by the process that began them."""
        return not self._tried and self.anchored and not process.is_other(self._begun_in)

    @property
    def has_failed(self) -> bool:
        """Whether the messages were failed, also after an ack."""
        return self._state in ("failed", "acked, then failed")

    def emit(
        self,
        inputs: AnyId | Iterable[AnyId] | None = None,
        *,
        key: str | None = None,
        edge: str = "",
    ) -> MessageId:
        """Return the id of a new message, anchored to all inputs or to those in ``inputs``.

        Send exactly one message with this id.

        Args:
            inputs: The inputs that caused the message; by default all. With ``[]`` the message is
                unanchored.
            key: Makes the id deterministic: it is derived from the key and the anchored inputs.
                When the same messages are delivered and processed again, the children have the same
                ids. The key must identify the child: its ordinal, or its destination.
            edge: The name of the edge that the message travels on.

        Raises:
            ConfigError: ``key`` is given, and ``ids`` has no salt.
            RedisUnavailableError: ``key`` is given, and the salt cannot be read from Redis in time.
            ClosedError: The inputs were acked or failed, or this process is a forked child of the
                one that began them. Nothing is emitted then.
            InvalidBatchError: A message is not one of the inputs, the key was already used, or the
                message would belong to more than 1638 trees. Nothing is emitted then.

        Examples:
            >>> join = Processing("7:40", "7:41,8:42")
            >>> sorted(join.emit()), sorted(join.emit("7:40")), sorted(join.emit([]))
            ([7, 8], [7], [])
            >>> ids = IdMaker(salt="00" * 16)  # in a program: acker.ids
            >>> first, again = Processing("7:40", ids=ids), Processing("7:40", ids=ids)
            >>> first.emit(key="mill") == again.emit(key="mill")
            True

        """
        if inputs is None and key is None and len(self._inputs) == 1 and self._deltas:
            return self._only_child(self._maker or maker_of(self._ids), edge)
        chosen = self.inputs if inputs is None else self._chosen(inputs)
        return _emit([self], [(self, given) for given in chosen if given], key, self._ids, edge)

    def acked(self) -> list[Row]:
        """Close the messages as processed, and return the rows to send.

        Raises:
            ClosedError: The messages were already acked or failed, or this process is a forked
                child of the one that began them.

        Examples:
            >>> Processing("7:40").acked()
            [Row(anchor=7, delta=40, flags=0, text='')]

        """
        with self._lock:
            self._check_open()
            self._state, self._tried = "acked", True
            return [_row(Row, (anchor, delta, 0, "")) for anchor, delta in self._deltas.items()]

    def failed(self, why: str | BaseException = "") -> list[Row]:
        """Close the messages and fail their trees; return the rows to send.

        The rows are whole, because a block also waits for the messages of its failed trees. After
        an ack, the rows contain only the failure.

        Args:
            why: The reason, a text or an exception. It is cut to 255 bytes, with control characters
                replaced.

        Raises:
            ClosedError: The messages were already failed.

        Examples:
            >>> Processing("7:40").failed("no such address")
            [Row(anchor=7, delta=40, flags=2, text='no such address')]

        """
        text = words(why) if isinstance(why, BaseException) else clipped(why)
        with self._lock:
            if self.has_failed:
                raise ClosedError("this message was failed before")
            whole = self._state == "open"
            self._tried = True
            self._state = "failed" if whole else "acked, then failed"
            return self._rows(FAIL, text, whole=whole)

    def touched(self) -> list[Row]:
        """Return the rows that reset the timeout of the trees (Storm's resetTimeout).

        Raises:
            ClosedError: The messages were acked or failed, or this process is a forked child of the
                one that began them.

        Examples:
            >>> Processing("7:40").touched()
            [Row(anchor=7, delta=0, flags=4, text='')]

        """
        with self._lock:
            self._check_open()
            return self._rows(TOUCH, whole=False)

    def adopt(self, edge: int, keys: Iterable[str]) -> None:
        """Note children of the only message whose ids a batch has made: their XOR, and their keys.

        >>> done = Processing("7:40")
        >>> done.adopt(41, [])
        >>> done.acked() == [Row(7, 40 ^ 41)]
        True
        """
        self._give(dict.fromkeys(self._deltas, edge))
        if keys := set(keys):
            self._keys = keys

    def reopen(self) -> None:
        """Undo the last acked() or failed(), if its rows were not accepted for sending.

        >>> done = Processing("7:40")
        >>> rows = done.acked()
        >>> done.reopen()
        >>> done.acked() == rows
        True
        """
        with self._lock:
            self._state = _BEFORE[self._state]

    def _only_child(self, maker: IdMaker, edge_name: str) -> MessageId:
        """As :func:`_emit`, but faster, for the usual case of one input and no key."""
        with self._lock:
            self._check_open()
            if not self._drawn:
                self._drawn = maker.draw(DRAWN)
                if maker.was_read:
                    self._maker = maker
            # The ids may have been drawn before the configuration was read.
            edge = self._drawn.pop() & maker.low
            if edge_name:
                edge |= maker.code(edge_name)
            for anchor in self._deltas:
                self._deltas[anchor] ^= edge
        return MessageId.trusted(dict.fromkeys(self._deltas, edge))

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClosedError(f"this message was {self._state} before")
        begun_in = self._begun_in
        if (begun_in != process.forks or process.forking) and process.is_other(begun_in):
            raise ClosedError(
                "this message was begun before the fork: only the parent process may emit, ack or "
                "touch it; fork first, or pass the message's id to the child"
            )

    def _rows(self, flags: int, text: str = "", *, whole: bool = True) -> list[Row]:
        return [Row(a, delta if whole else 0, flags, text) for a, delta in self._deltas.items()]

    def _chosen(self, inputs: AnyId | Iterable[AnyId]) -> list[MessageId]:
        """Return the given inputs as ids; raise InvalidBatchError if one is no input, or twice."""
        # Iterating a text would give its characters; iterating an id, its anchors.
        several = (inputs,) if isinstance(inputs, str | bytes | MessageId) else inputs
        chosen, known = [MessageId.of(given) for given in several], set(self.inputs)
        _check_distinct(chosen)
        for each in chosen:
            if each not in known:
                anchors = ", ".join(map(str, sorted(each))) or "no tree"
                raise InvalidBatchError(
                    f"a message of {anchors} is not one of the inputs of this Processing"
                )
        return chosen

    def _give(self, edges: Mapping[int, int]) -> None:
        """Add the edges of a child, one in each of its trees, to the rows."""
        with self._lock:
            self._check_open()
            _xor(self._deltas, edges)

    def _claim(self, key: str) -> None:
        with self._lock:
            if self._keys is None:
                self._keys = set()
            if key in self._keys:
                raise InvalidBatchError(
                    f"key {key!r} was already used for another message; give each child its own"
                )
            self._keys.add(key)

    def _disclaim(self, key: str | None) -> None:
        with self._lock:
            if self._keys is not None and key is not None:
                self._keys.discard(key)


class OpenTree(Processing):
    """A tree whose source emits its first messages one by one.

    An open tree holds one message itself, so it cannot complete before it is closed. Track first:
    apply ``opening``, then send the messages with their ids, then apply the row of :meth:`close`.

    Args:
        source_id: The source's id of the record, 1 to 255 bytes of UTF-8 without control
            characters.
        ids: Makes the ids of the messages; in a namespace with edges ``acker.ids``.
        anchor: The anchor of the tree, :func:`new_anchor`; None draws one.

    Raises:
        InvalidBatchError: The source id is invalid.

    Examples:
        >>> tree = OpenTree("file/1")
        >>> first, second = tree.emit(), tree.emit()
        >>> (closing,) = tree.close()
        >>> tree.opening.delta ^ closing.delta == first[tree.anchor] ^ second[tree.anchor]
        True

    """

    __slots__ = ("anchor", "opening")

    def __init__(self, source_id: str, *, ids: IdMaker = PLAIN, anchor: int | None = None) -> None:
        check_text("source id", source_id, 1)
        self.anchor = new_anchor() if anchor is None else anchor
        """The anchor of the tree, which the verdict carries."""
        (handle,) = ids.draw(1)
        self.opening = Row(self.anchor, handle, TRACK, source_id)
        """The row that tracks the tree."""
        super().__init__(MessageId.trusted({self.anchor: handle}), ids=ids)

    def close(self) -> list[Row]:
        """Close the tree, after its last message, and return the row to send.

        Raises:
            ClosedError: The tree was already closed or failed.

        Examples:
            >>> tree = OpenTree("an empty file")
            >>> tree.close()[0].delta == tree.opening.delta
            True

        """
        return self.acked()

    def fail(self, why: str | BaseException = "") -> list[Row]:
        """Fail the tree and return the row to send; ``why`` is as in :meth:`failed`.

        Raises:
            ClosedError: The tree was already failed.

        Examples:
            >>> OpenTree("file/1").fail("unreadable")[0].text
            'unreadable'

        """
        return self.failed(why)


def emit_from(*processings: Processing, key: str | None = None, edge: str = "") -> MessageId:
    """Return the id of a new message that is anchored to several processings.

    Each processing is acked separately. Use it for a window, which holds a :class:`Processing` for
    each of its messages.

    Args:
        *processings: The processings that caused the message.
        key: Makes the id deterministic, as in :meth:`Processing.emit`.
        edge: The name of the edge that the message travels on.

    Raises:
        ClosedError: One of the processings was acked or failed. Nothing is emitted then.
        InvalidBatchError: A message occurs twice in the processings, or as in
            :meth:`Processing.emit`. Nothing is emitted then.

    Examples:
        >>> window = [Processing("7:40"), Processing("7:41")]
        >>> child = emit_from(*window)
        >>> rows = [row for message in window for row in message.acked()]
        >>> rows[0].delta ^ rows[1].delta == 40 ^ 41 ^ child[7]
        True

    """
    _check_distinct([given for one in processings for given in one.inputs])
    parents = [(one, given) for one in processings for given in one.inputs if given]
    return _emit(processings, parents, key, processings[0]._ids if processings else PLAIN, edge)


def _emit(
    ones: Sequence[Processing],
    parents: Sequence[tuple[Processing, MessageId]],
    key: str | None,
    made_by: Ids,
    edge_name: str,
) -> MessageId:
    """Add an edge to each parent (an input of a processing); return the child's id."""
    for one in ones:
        one._check_open()
    maker = maker_of(made_by, derives=key is not None and bool(parents))
    code = maker.code(edge_name)
    inputs = [given for _, given in parents]
    edges, ids = _child(inputs, key, maker)
    carried = _carriers(inputs) if code else [()] * len(inputs)
    if code:
        ids = {anchor: tuple_id | code for anchor, tuple_id in ids.items()}
    claimed: list[Processing] = []
    given: list[tuple[Processing, dict[int, int]]] = []
    try:
        if key is not None:
            for one in ones:
                one._claim(key)
                claimed.append(one)
        for (one, parent), edge, carries in zip(parents, edges, carried, strict=True):
            own = {anchor: edge | code if anchor in carries else edge for anchor in parent}
            one._give(own)
            given.append((one, own))
    except (ClosedError, InvalidBatchError):
        for one in claimed:
            one._disclaim(key)
        for one, own in given:
            # XOR removes the edge. If the row was already returned, that tree will expire.
            with suppress(ClosedError):
                one._give(own)
        raise
    return MessageId.trusted(ids)


def _carriers(inputs: Sequence[MessageId]) -> list[tuple[int, ...]]:
    """Return for each input the anchors in whose trees it has the least id of all inputs."""
    least: dict[int, tuple[int, int]] = {}
    for place, message_id in enumerate(inputs):
        for anchor, tuple_id in message_id.items():
            if anchor not in least or tuple_id < least[anchor][0]:
                least[anchor] = tuple_id, place
    return [
        tuple(anchor for anchor in message_id if least[anchor][1] == place)
        for place, message_id in enumerate(inputs)
    ]


def _child(
    inputs: Sequence[MessageId], key: str | None, maker: IdMaker
) -> tuple[list[int], dict[int, int]]:
    """Return an edge for each input, and the child's id in each tree, all without codes."""
    attempt = 0
    while True:
        edges = maker.draw(len(inputs)) if key is None else _derived(inputs, key, attempt, maker)
        ids: dict[int, int] = {}
        for message_id, edge in zip(inputs, edges, strict=True):
            for anchor in message_id:
                ids[anchor] = ids.get(anchor, 0) ^ edge
        if all(ids.values()):
            return edges, check_size(ids)
        attempt += 1  # two edges cancelled, with a probability of 2^-63


def _first_ids(
    count: int, draw: Callable[[int], list[int]], low: int
) -> tuple[int, list[int], int]:
    """Return an anchor, distinct ids, and their XOR, which is zero only if there are no ids."""
    while True:
        if count == 1:  # the usual case
            drawn, raw_id = draw(2)
            if drawn > 1 and (id_ := raw_id & low):
                return drawn >> 1, [id_], id_
            continue
        drawn, *raw = draw(count + 1)
        ids = [each & low for each in raw]
        anchor, delta = drawn >> 1, reduce(xor, ids, 0)
        if anchor and all(ids) and (count < 2 or len(set(ids)) == count) and (delta or not count):
            return anchor, ids, delta


def in_bulk(place: Callable[[int, int], int] | None = None) -> Callable[[int], list[int]]:
    """Return a ``draw`` for :func:`emit` that is faster for many trees emitted at once.

    Discard it after the last of these trees, so that a fork or snapshot cannot repeat its ids. Not
    thread-safe.

    Args:
        place: ``place(anchor, number)`` returns the anchor to use instead of a random one;
            ``number`` is another random number.


    >>> draw = in_bulk()
    >>> trees = [emit(source_id, draw=draw) for source_id in ("order-1", "order-2")]
    >>> len({tree.anchor for tree in trees})
    2

    """
    left: list[int] = []

    def draw(count: int) -> list[int]:
        if len(left) <= count:
            left[:] = draw_ids(max(512, count + 1))
        drawn = left[-count:]
        del left[-count:]
        if place:
            drawn[0] = place(drawn[0] >> 1, left.pop()) << 1  # the first makes the anchor
        return drawn

    return draw


def maker_of(ids: Ids, derives: bool = False) -> IdMaker:
    """Return what makes the next ids; to derive one the configuration must be known."""
    maker = ids if isinstance(ids, IdMaker) else ids()
    return maker.known() if derives else maker


def child_edge(given: MessageId, key: str, maker: IdMaker) -> int:
    """Return the derived id, without a code, of the child of one message: see ``key`` above.

    Raises:
        ConfigError: The salt of the namespace is unknown.

    """
    (edge,), _ = _child([given], key, maker)
    return edge


def _derived(inputs: Sequence[MessageId], key: str, attempt: int, maker: IdMaker) -> list[int]:
    """Return an edge for each input, derived from all inputs and the key, without a code.

    Each edge depends on all inputs: if a message is joined with other messages after a replay, the
    child is another one and must not share an edge with the first.
    """
    texts = [str(message_id) for message_id in inputs]
    parts = [key, str(attempt), *sorted(texts)]
    return [maker.derive("child", *parts, text) for text in texts]


def _xor(deltas: dict[int, int], *others: Mapping[int, int]) -> dict[int, int]:
    """XOR the ids of messages into those of each tree, and return them."""
    for other in others:
        for anchor, tuple_id in other.items():
            deltas[anchor] = deltas.get(anchor, 0) ^ tuple_id
    return deltas


def _check_distinct(inputs: Iterable[MessageId]) -> None:
    seen: set[tuple[int, int]] = set()
    for pair in (pair for message_id in inputs for pair in message_id.items()):
        if pair in seen:
            raise InvalidBatchError(f"a message of tree {pair[0]} is given twice")
        seen.add(pair)
