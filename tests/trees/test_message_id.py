"""Message ids: text form, headers, and validation."""

import copy
import doctest
import pickle
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import ANCHOR_MAX, TUPLE_MAX, block_anchor, parse_tuple
from acker_redis.trees import message_id
from acker_redis.trees.message_id import MAX_MESSAGE, MAX_TREES, MessageId
from acker_redis.trees.processing import Processing

ANCHORS = st.integers(1, ANCHOR_MAX) | st.builds(
    block_anchor, st.integers(0, 2**50 - 1), st.integers(0, 4094)
)
IDS = st.dictionaries(ANCHORS, st.integers(1, TUPLE_MAX), max_size=20)
MESSAGE_IDS = IDS.map(MessageId)


def test_examples() -> None:
    assert doctest.testmod(message_id).failed == 0


@given(IDS)
def test_text_form_round_trips(ids: dict[int, int]) -> None:
    made = MessageId(ids)
    assert dict(made) == ids
    assert MessageId.parse(str(made)) == made
    assert dict(map(parse_tuple, filter(None, str(made).split(",")))) == ids
    assert bool(made) == bool(ids) == bool(str(made))


@given(IDS, st.randoms(use_true_random=False))
def test_order_of_anchors_does_not_matter(ids: dict[int, int], chance: Any) -> None:
    pairs = list(ids.items())
    chance.shuffle(pairs)
    one, other = MessageId(ids), MessageId(pairs)
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)
    assert MessageId.parse(" ,\t".join(f"{a}:{i}" for a, i in pairs)) == one


@given(MESSAGE_IDS)
def test_copies_are_equal(made: MessageId) -> None:
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert other == made
        assert type(other) is MessageId
    assert eval(repr(made)) == made
    assert MessageId.of(made) is made
    assert MessageId.of(str(made)) == made


def test_message_id_is_an_immutable_mapping() -> None:
    made = MessageId.parse("7:40,8:41")
    assert isinstance(made, Mapping)
    assert made.get(9) is None
    assert sorted(made) == [7, 8]
    assert f"{made}" == "7:40,8:41"
    with pytest.raises(TypeError):
        made[7] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.anchor = 7  # type: ignore[attr-defined]
    given = {7: 40}
    made = MessageId(given)
    given[8] = 41
    assert dict(made) == {7: 40}
    assert made != {7: 40}
    assert made != "7:40"


MALFORMED = [
    "7",
    "7:",
    ":7",
    "7:40:1",
    "7:40,",
    ",7:40",
    "7:40,,8:41",
    "7 :40",
    "7:40\n",
    "7:40;8:41",
    "+7:40",
    "-7:40",
    "7:4_0",
    "7:0x28",
    "\u0667:\u0664\u0660",
    "7:0",
    "0:40",
    "7:40,7:41",
    "7:40,7:40",
    f"7:{TUPLE_MAX + 1}",
    f"{TUPLE_MAX + 1}:40",
    f"{(1 << 62) | 4095}:40",
    "7:" + "4" * 20,
    "\x00",
    "7:40\xa0",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidBatchError):
        MessageId.parse(text)
    with pytest.raises(InvalidBatchError):
        MessageId.of(text)
    with pytest.raises(InvalidBatchError):
        MessageId.of(text.encode())


@pytest.mark.parametrize("kind", [str.encode, lambda text: bytearray(text.encode())])
def test_bytes_are_taken_as_text(kind: Callable[[str], Any]) -> None:
    """As redis-py, Kafka and ASGI return them."""
    both = MessageId({7: 40, 8: 41})
    assert MessageId.parse(kind("7:40, 8:41")) == MessageId.of(kind("8:41,7:40")) == both
    assert MessageId.parse(kind("")) == MessageId()
    assert parse_tuple(b"7:40") == (7, 40)
    join = Processing(b"7:40", b"8:41")
    assert set(join.emit(b"8:41")) == set(join.emit([b"8:41"])) == {8}


@given(st.text(max_size=50) | st.text("0123456789:, \t", max_size=50))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        made = MessageId.parse(text)
    except InvalidBatchError:
        return
    assert MessageId.parse(str(made)) == made


@pytest.mark.parametrize(
    "ids",
    [{0: 1}, {1: 0}, {1: 2**63}, {1: True}, {"1": 2}, "7:40", [(1, 2), (1, 3)], [(1, 2), (1, 2)]],
)
def test_invalid_ids_are_refused(ids: Any) -> None:
    with pytest.raises(InvalidBatchError):
        MessageId(ids)


@pytest.mark.parametrize("given", [None, 7, {7: 40}, [b"7:40"]])
def test_values_that_are_no_message_id_are_refused(given: Any) -> None:
    with pytest.raises(InvalidBatchError):
        MessageId.of(given)


def test_longest_message_id_round_trips() -> None:
    most = {ANCHOR_MAX - i: TUPLE_MAX for i in range(MAX_TREES)}
    text = str(MessageId(most))
    assert MAX_MESSAGE - 40 < len(text) <= MAX_MESSAGE
    assert MessageId.parse(text) == MessageId(most)
    with pytest.raises(InvalidBatchError, match="at most 1638 trees"):
        MessageId({**most, 1: 1})
    with pytest.raises(InvalidBatchError, match="at most 1638 trees"):
        MessageId.parse(",".join(f"{i + 1}:1" for i in range(MAX_TREES + 1)))
    assert MessageId.parse("7:40".ljust(MAX_MESSAGE)) == MessageId({7: 40})
    with pytest.raises(InvalidBatchError, match="65536 characters"):
        MessageId.parse("7:40".ljust(MAX_MESSAGE + 1))


@given(MESSAGE_IDS)
def test_headers_round_trip(made: MessageId) -> None:
    headers = made.to_headers()
    assert list(headers) == ["acker-tuple"] * bool(made)
    raw = {name.title().encode(): value.encode() for name, value in headers.items()}
    for form in (headers, list(headers.items()), raw, tuple(raw.items()), iter(raw.items())):
        assert MessageId.from_headers(form) == made


@pytest.mark.parametrize(
    "headers",
    [
        [("acker-tuple", "7:40"), ("x", "y"), ("ACKER-TUPLE", "8:41")],
        [(b"acker-tuple", b"8:41 , 7:40"), (b"bad", b"\xff")],
        [("acker-tuple", b"7:40 ,\t8:41")],
        [("Acker-Tuple", ", 7:40,, 8:41 ,")],
        [("acker-tuple", ""), ("acker-tuple", "7:40,8:41")],
        [("acker-tuple", bytearray(b"7:40,8:41"))],
        {"Acker-Tuple": " 7:40,8:41 "},
    ],
)
def test_repeated_headers_are_joined(headers: Any) -> None:
    assert MessageId.from_headers(headers) == MessageId({7: 40, 8: 41})


def test_repeated_headers_of_http_client_are_joined() -> None:
    headers = Message()  # as of http.client
    headers["Acker-Tuple"] = "7:40"
    headers["Acker-Tuple"] = "8:41"
    pairs: Any = headers
    assert MessageId.from_headers(pairs) == MessageId({7: 40, 8: 41})


@pytest.mark.parametrize(
    "headers", [None, {}, [], {"acker-tuples": "x"}, {"acker-tuple": ""}, [("acker-tuple", " ,")]]
)
def test_message_without_the_header_is_unanchored(headers: Any) -> None:
    assert MessageId.from_headers(headers) == MessageId()


class Whole(str):
    """A text that must not be taken apart."""

    __slots__ = ()

    def split(self, *_: Any) -> Any:
        pytest.fail("it is longer than any message id")


@pytest.mark.parametrize(
    "values",
    [
        [Whole("," * (MAX_MESSAGE + 1))],
        [Whole("," * 1000)] * 66,
        [b"," * 2**24],
        [""] * (MAX_MESSAGE + 2),
    ],
)
def test_header_that_is_too_long_is_refused_before_it_is_taken_apart(values: list[Any]) -> None:
    with pytest.raises(InvalidBatchError, match="at most 65536 characters"):
        MessageId.from_headers([("acker-tuple", each) for each in values])


@pytest.mark.parametrize(
    "headers",
    [
        {"acker-tuple": "7"},
        [("acker-tuple", "7:40"), ("acker-tuple", "7:41")],
        [("acker-tuple", None)],
        [("acker-tuple", b"\xff")],
        [("acker-tuple", "7:40," * 20_000)],
        {"acker-tuple": 7},
    ],
)
def test_a_malformed_header_is_refused(headers: Any) -> None:
    with pytest.raises(InvalidBatchError):
        MessageId.from_headers(headers)
