"""Process a batch of messages, each on its own, in columns of numpy. No I/O.

The result is that of one :class:`Processing` for each message: one whole row per message and tree.
"""

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.protocol.arrays import Ints
from acker_redis.protocol.id_maker import PLAIN
from acker_redis.protocol.ids import TUPLE_MAX
from acker_redis.protocol.texts import clipped, words
from acker_redis.trees import process
from acker_redis.trees.message_id import AnyId, MessageId
from acker_redis.trees.processing import Ids, Processing, child_edge, maker_of

Given = AnyId | None
_DIGITS = b"0123456789"


class Settled(NamedTuple):
    """The rows of a settled batch: a row for each message and tree."""

    anchors: Ints
    deltas: Ints
    failed: dict[int, str]
    """The anchors of failed trees, with the reason."""


class Children:
    """The ids of new messages, in the order of the messages that caused them.

    >>> batch = ProcessingBatch(["7:40", "8:41"])
    >>> children = batch.emit([0, 2])
    >>> children.parents.tolist()
    [1, 1]
    >>> [text.split(":")[0] for text in children.texts]
    ['8', '8']
    """

    def __init__(self, parents: Ints, edges: Ints, inputs: "_Inputs") -> None:
        self.parents = parents
        """For each new message, the position of the message in the batch that caused it."""
        self._edges = edges
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each id, for the header ``acker-tuple``; '' for an unanchored message."""
        inputs = self._inputs
        edges, parents = self._edges.tolist(), self.parents
        if inputs.single:
            anchors = inputs.anchors[parents].tolist()
            return [f"{anchor}:{edge}" for anchor, edge in zip(anchors, edges, strict=True)]
        starts = inputs.starts.tolist()
        all_ = inputs.anchors.tolist()
        return [
            ",".join(f"{anchor}:{edge}" for anchor in sorted(all_[starts[at] : starts[at + 1]]))
            for at, edge in zip(parents.tolist(), edges, strict=True)
        ]

    @property
    def ids(self) -> list[MessageId]:
        """The ids as :class:`MessageId`."""
        return [MessageId.parse(text) for text in self.texts]


class ProcessingBatch:
    """Messages of a batch, each processed on its own.

    Emit the children first. Then settle the batch once, and apply its rows. A message that is
    twice in the batch was delivered twice: both acks cancel, and its tree expires. Thread-safe.

    Args:
        given: The ids of the messages: texts, bytes of a header, or MessageIds. '' and None stand
            for an unanchored message.
        ids: Makes the ids of the children; see :class:`Processing`.

    Raises:
        InvalidBatchError: A value is no message id; the error says at which position.

    Examples:
        >>> batch = ProcessingBatch([b"7:40", "8:41", None])
        >>> children = batch.emit()
        >>> children.texts[2]
        ''
        >>> batch.fail(1, "no such address")
        >>> batch.acked().failed
        {8: 'no such address'}

    """

    def __init__(self, given: Iterable[Given], *, ids: Ids = PLAIN) -> None:
        self._inputs = _Inputs(list(given))
        self._ids = ids
        self._edges: Ints = np.zeros(len(self._inputs), dtype=np.int64)
        """For each message, the XOR of the ids of its children (Storm's ackVal)."""
        self._failed: dict[int, str] = {}
        self._taken: set[int] = set()
        """Positions of messages that are processed on their own."""
        self._keys: dict[str, npt.NDArray[np.bool_]] = {}
        """Which messages have a child of each key."""
        self._settled: Settled | None = None
        self._begun_in = process.forks
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def open(self) -> bool:
        """Whether the batch is not settled."""
        return self._settled is None

    @property
    def forgotten(self) -> bool:
        """Whether no attempt was made to settle the batch, by the process that began it."""
        return self._settled is None and len(self) > 0 and not process.is_other(self._begun_in)

    def emit(
        self, counts: int | Sequence[int] | Ints = 1, *, key: str | None = None, edge: str = ""
    ) -> Children:
        """Return the ids of new messages. Send exactly one message with each.

        Args:
            counts: The number of new messages that each message has caused: one number for all, or
                one for each.
            key: Makes the ids deterministic: see :meth:`Processing.emit`. A message has at most one
                child of each key. It costs some microseconds a message.
            edge: The name of the edge that the messages travel on.

        Raises:
            ConfigError: ``key`` is given, and ``ids`` has no salt.
            RedisUnavailableError: ``key`` is given, and the salt cannot be read from Redis in time.
            ClosedError: The batch is settled, or this process is a forked child of the one that
                began it.
            InvalidBatchError: ``counts`` has another length or a negative number, a message has a
                child of this key, or ``counts`` is above 1 with a key. Nothing is emitted then.

        """
        number = self._counts(counts)
        if key is not None and number.max(initial=0) > 1:
            raise InvalidBatchError("with key= a message has one child; call emit() for each key")
        anchored = bool(len(self._inputs.anchors))
        maker = maker_of(self._ids, derives=key is not None and anchored)
        parents: Ints = np.repeat(np.arange(len(number)), number)
        with self._lock:
            self._check_open()
            if self._taken and any(number[at] for at in self._taken):
                raise InvalidBatchError("a message that was taken out has no children here")
            has_child = number > 0
            if key is not None and (has_child & self._keys.get(key, False)).any():
                raise InvalidBatchError(
                    f"key {key!r} was already used for another message; give each child its own"
                )
            if key is None:
                edges = drawn(len(parents), maker.low)
            else:
                messages = [self._inputs.message(at) for at in parents.tolist()]
                edges = np.array(
                    [child_edge(each, key, maker) if each else 0 for each in messages],
                    dtype=np.int64,
                )
                self._keys[key] = has_child | self._keys.get(key, False)
            edges |= maker.code(edge)
            if len(parents):
                some = np.flatnonzero(number)
                starts = np.concatenate(([0], np.cumsum(number[some])[:-1]))
                self._edges[some] ^= np.bitwise_xor.reduceat(edges, starts)
        return Children(parents, edges, self._inputs)

    def fail(self, position: int, why: str | BaseException = "") -> None:
        """Fail one message: its trees are nacked when the batch is settled.

        Args:
            position: The position of the message in the batch.
            why: The reason, a text or an exception. It is cut to 255 bytes.

        Raises:
            ClosedError: The batch is settled.
            InvalidBatchError: There is no such position.

        """
        # A mask of numpy, or a share, would fail other messages than meant.
        whole = isinstance(position, int | np.integer) and not isinstance(position, bool)
        if not whole or not 0 <= position < len(self):
            raise InvalidBatchError(f"the batch has messages 0 to {len(self) - 1}, not {position}")
        with self._lock:
            self._check_open()
            self._failed.setdefault(position, _reason(why))

    def take(self, position: int) -> Processing:
        """Take one message out of the batch, with the children that it has so far.

        >>> batch = ProcessingBatch(["7:40", "8:41"])
        >>> children = batch.emit([1, 0])
        >>> batch.take(0).acked()[0].delta == 40 ^ children.ids[0][7]
        True
        >>> batch.acked().anchors.tolist()
        [8]

        Raises:
            ClosedError: The batch is settled.
            InvalidBatchError: The message was taken before.

        """
        with self._lock:
            self._check_open()
            if position in self._taken:
                raise InvalidBatchError(f"message {position} is processed on its own already")
            self._taken.add(position)
            one = Processing(self._inputs.message(position), ids=self._ids)
            keys = [key for key, used in self._keys.items() if used[position]]
            one.adopt(int(self._edges[position]), keys)
            return one

    def acked(self) -> Settled:
        """Settle the batch: messages that were not failed are acked. Return the rows to apply.

        Later calls return the same rows. Apply them as one ColumnBatch, so that none counts twice.

        Raises:
            ClosedError: This process is a forked child of the one that began the batch.

        """
        with self._lock:
            self._check_process()
            if self._settled is None:
                inputs = self._inputs
                spread = self._edges if inputs.single else np.repeat(self._edges, inputs.sizes)
                failed: dict[int, str] = {}
                for position, why in sorted(self._failed.items()):
                    for anchor in inputs.message(position):
                        failed.setdefault(anchor, why)
                anchors, deltas = inputs.anchors, inputs.tuple_ids ^ spread
                if self._taken:
                    stay = np.ones(len(self), dtype=np.bool_)
                    stay[list(self._taken)] = False
                    kept = stay if inputs.single else np.repeat(stay, inputs.sizes)
                    anchors, deltas = anchors[kept], deltas[kept]
                self._settled = Settled(anchors, deltas, failed)
            return self._settled

    def failed(self, why: str | BaseException = "") -> Settled:
        """Settle the batch: all messages fail. Return the rows to apply.

        Messages that were failed before keep their reason.

        Raises:
            ClosedError: The batch is settled.

        """
        text = _reason(why)
        with self._lock:
            self._check_open()
            self._failed = dict.fromkeys(range(len(self)), text) | self._failed
        return self.acked()

    def _counts(self, counts: int | Sequence[int] | Ints) -> Ints:
        number = np.asarray(counts)
        if number.dtype.kind not in "iu" and number.size:
            raise InvalidBatchError(f"counts are whole numbers, not {number.dtype}")
        if number.ndim == 0:
            number = np.full(len(self), number)
        # As int64, unsigned numbers above 2^63-1 would become negative.
        most = number.max(initial=0)
        if number.shape != (len(self),) or number.min(initial=0) < 0 or most > TUPLE_MAX:
            raise InvalidBatchError(
                f"counts are one number for each of the {len(self)} messages, 0 or more"
            )
        return number.astype(np.int64, copy=False)

    def _check_open(self) -> None:
        if self._settled is not None:
            raise ClosedError("this batch was settled before")
        self._check_process()

    def _check_process(self) -> None:
        if process.is_other(self._begun_in):
            raise ClosedError(
                "this batch was begun before the fork: only the parent process may emit or settle"
            )


class _Inputs:
    """The ids of messages as columns: a pair of anchor and tuple id for each of their trees."""

    def __init__(self, given: list[Given]) -> None:
        self._size = len(given)
        pairs = _fast(given)
        self.single = pairs is not None
        """Whether each message belongs to exactly one tree."""
        if pairs is not None:
            self.anchors, self.tuple_ids = pairs
            return
        messages = [_message(at, each) for at, each in enumerate(given)]
        self.sizes: Ints = np.array([len(each) for each in messages], dtype=np.int64)
        """The number of trees of each message."""
        self.starts: Ints = np.concatenate(([0], np.cumsum(self.sizes)))
        """For each message the position of its first pair, and then their number."""
        flat = [pair for each in messages for pair in each.items()]
        self.anchors = np.array([anchor for anchor, _ in flat], dtype=np.int64)
        self.tuple_ids = np.array([tuple_id for _, tuple_id in flat], dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    def message(self, at: int) -> MessageId:
        """Return the id of one message."""
        first, end = (at, at + 1) if self.single else (self.starts[at], self.starts[at + 1])
        pairs = zip(
            self.anchors[first:end].tolist(), self.tuple_ids[first:end].tolist(), strict=True
        )
        return MessageId.trusted(dict(pairs))


def _fast(given: list[Given]) -> tuple[Ints, Ints] | None:
    """Return the pairs of messages with one tree each; None if a message needs a closer look."""
    try:
        try:
            text = b"\n".join(given)  # type: ignore[arg-type]
        except TypeError:
            text = "\n".join(given).encode("ascii")  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        return None
    # Without its digits, a text of such pairs has these characters only.
    if not given or text.translate(None, _DIGITS) != b"\n".join([b":"] * len(given)):
        return None
    if text[:1] == b"0" or b"\n0" in text or b":0" in text:
        return None  # the parser limits the digits
    numbers: Ints = np.fromstring(text.replace(b":", b" "), dtype=np.int64, sep=" ")
    # A number that is missing is not there. One that is too large has the highest value.
    if len(numbers) != 2 * len(given) or numbers.min() < 1 or numbers.max() == TUPLE_MAX:
        return None
    anchors, tuple_ids = numbers[::2].copy(), numbers[1::2].copy()
    blocks = anchors[anchors >> 62 == 1]
    return None if (blocks & 0xFFF == 0xFFF).any() else (anchors, tuple_ids)


def _message(at: int, given: Given) -> MessageId:
    try:
        return MessageId.of("" if given is None else given)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"message {at} of the batch: {error}") from None


def drawn(count: int, low: int) -> Ints:
    """Return random ids without a code, 1 .. ``low``, from the system's source (fork-safe)."""
    while True:
        ids = np.frombuffer(bytearray(os.urandom(8 * count)), dtype=np.int64) & low
        if ids.all():
            return ids


def _reason(why: str | BaseException) -> str:
    return words(why) if isinstance(why, BaseException) else clipped(why)
