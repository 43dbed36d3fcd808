"""The message in process that all integrations share."""

import contextvars
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis import ClosedError, ConfigError, InvalidBatchError, MessageId
from acker_redis.integrations.core import work as work_module
from acker_redis.integrations.core.failures import to_tell
from acker_redis.integrations.core.headers import text_of, with_id
from acker_redis.integrations.core.work import Work, current, in_process
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.rows import FAIL, Row


class Kafka: ...


class Http: ...


def test_each_transport_finds_its_own_message() -> None:
    outer, inner, other = Work(Kafka(), "7:40"), Work(Kafka(), "7:41"), Work(Http(), "8:42")
    with outer, other:
        assert (current(Kafka), current(Http)) == (outer, other)
        with inner:
            assert current(Kafka) is inner
        assert current(Kafka) is outer
        copied = contextvars.copy_context()
    assert (current(Kafka), current(Http)) == (None, None)
    assert copied.run(current, Kafka) is outer, "as in a thread of a handler"
    with pytest.raises(ConfigError, match="needs a message in process"):
        in_process(Kafka, "produce()")


def test_messages_may_end_in_another_order_than_they_began() -> None:
    first, second = Work(Kafka(), "7:40"), Work(Http(), "8:42")
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert (current(Kafka), current(Http)) == (None, second)
    second.__exit__()
    assert current(Http) is None


def test_message_is_finished_once_when_its_handler_and_all_deliveries_are_through() -> None:
    finished: list[Work[None]] = []
    work = Work(None, "7:40", then=finished.append)
    child = work.emit(reported=True)
    work.returned()
    other = work.emit(reported=True)  # a delivery report may produce, too
    work.report()
    assert finished == []
    work.report(OSError("refused"))
    work.failed(ValueError("later"))
    assert finished == [work]
    with pytest.raises(ClosedError, match="its handler has returned"):
        work.emit()
    assert work.rows() == [Row(7, 40 ^ child[7] ^ other[7], FAIL, "OSError: refused")]
    assert work.rows() == []


def test_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    with work_module._counts.lock:  # as a thread that emits at the time of the fork
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            Work(None, "7:40").emit()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_forked_child_neither_acks_nor_emits_for_its_parent() -> None:
    work = Work(None, "7:40")
    child = os.fork()
    if child == 0:
        code = 0
        for call in (work.emit, work.rows):
            with suppress(ClosedError):
                call()
                code = 1
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert work.rows() == [Row(7, 40)]


def test_message_that_waits_for_its_ids_holds_up_no_other_and_is_not_finished() -> None:
    began, answered = threading.Event(), threading.Event()
    finished: list[Work[None]] = []

    def slow() -> IdMaker:
        began.set()
        assert answered.wait(60)
        return PLAIN

    waits = Work(None, "7:40", slow, then=finished.append)
    with ThreadPoolExecutor() as pool:
        child = pool.submit(waits.emit)
        assert began.wait(60)
        waits.returned()
        assert not finished, "its row would lack the child"
        Work(None, "8:41").emit()
        answered.set()
    assert finished == [waits]
    assert waits.rows() == [Row(7, 40 ^ child.result()[7])]


@pytest.mark.parametrize("end", ["skip", "redeliver"])
def test_message_that_is_not_settled_has_no_row(end: str) -> None:
    work = Work(None, "7:40")
    getattr(work, end)()
    assert work.rows() == []
    failed = Work(None, "7:40")
    getattr(failed, end)()
    failed.failed("no such address")
    assert failed.rows() == [Row(7, 40, FAIL, "no such address")]


def test_message_that_is_delivered_again_after_it_has_sent_children_fails() -> None:
    """No row would announce them, and the next delivery may send none."""
    work = Work(None, "7:40")
    work.emit()
    work.redeliver()
    (row,) = work.rows()
    assert row.flags == FAIL


def test_child_that_another_service_has_processed_is_in_the_row_of_its_parent() -> None:
    for settle in (lambda _: None, lambda work: work.processing.acked()):
        work = Work(None, "7:40")
        child = work.emit()
        work.keep(child)
        settle(work)
        assert work.rows()[-1] == Row(7, child[7])


def test_failure_is_told_once_and_has_its_row_after_that() -> None:
    told: Any = print
    work, error = Work(None, "7:40"), ValueError("no such address")
    work.run(lambda: (_ for _ in ()).throw(error))
    assert to_tell(work, told, "here") is told
    assert work.emit() == MessageId(), "a dead letter is not tracked"
    assert to_tell(work, told, "here") is None
    assert work.rows() == [Row(7, 40, FAIL, "ValueError: no such address")]
    work.failed(OSError("not parked"))
    with pytest.raises(OSError, match="not parked"):
        to_tell(work, told, "here")


def test_failure_of_which_no_source_is_told_is_raised() -> None:
    work = Work(None, "")
    work.failed(ValueError("no such address"))
    with pytest.raises(ValueError, match="no such address"):
        to_tell(work, None, "here")


@pytest.mark.parametrize("name", ["Acker-Tuple", b"acker-tuple", bytearray(b"ACKER-TUPLE")])
def test_old_id_is_replaced_whether_its_name_is_text_or_bytes(name: Any) -> None:
    assert with_id([(name, "1:2"), ("a", 1)], "7:40") == [("a", 1), ("acker-tuple", "7:40")]


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["acker-tuple", "Acker-Tuple", b"acker-tuple", "trace", b"eleven-char"]),
        st.sampled_from(["7:40", b"8:41", "", "7:40,,8:41", b"9:42,", "x", b"1:2 ", " 3:4"]),
    ),
    max_size=3,
)


@given(HEADERS, st.booleans())
def test_id_in_headers_is_found_as_by_message_id(headers: list[Any], mapping: bool) -> None:
    given_: Any = dict(headers) if mapping else headers
    try:
        expected = MessageId.from_headers(given_)
    except InvalidBatchError:
        with pytest.raises(InvalidBatchError):
            MessageId.of(text_of(given_))
    else:
        assert MessageId.of(text_of(given_)) == expected
