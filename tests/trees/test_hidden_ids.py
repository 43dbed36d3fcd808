"""Errors, reprs and log lines show no id of a message, and no XOR of ids: they reach many readers.

An id of a log is enough to ack its message, and a checksum to complete its tree.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from acker_redis import AckerError, Backoff, Batch, Bolt, MessageId, Processing, Producer, Source
from acker_redis.integrations.rabbitmq.headers import id_of
from acker_redis.protocol.outcome import BlockOutcome, Outcome, parse_entry
from acker_redis.protocol.tree import BlockState, TreeState
from acker_redis.spark.fold.report import Report, combine
from acker_redis.trees.processing import emit_from
from acker_redis.trees.processing_batch import ProcessingBatch
from acker_redis.trees.record import Record, Verdict
from tests.conftest import MakeAcker
from tests.support import tick

ID = 1 << 55 | 0x12_3456_789A_BCDE
TEXT = f"7:{ID}"
HEADERS = {"acker-tuple": f"[{TEXT}]"}
EXPIRED = [b"verdict", b"nack", b"reason", b"expired", b"n", b"1"]


def shows(text: str, number: int = ID) -> bool:
    return str(number)[:9] in text or f"{number:x}"[:9] in text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Batch().ack(7, ID, [ID]),
        lambda: Batch().fail(7, "no", ID, [5, ID]),
        lambda: MessageId.parse(f"'{TEXT}'"),
        lambda: MessageId.parse(f"{TEXT};8:{ID}"),
        lambda: MessageId.parse(f"{TEXT},{TEXT}"),
        lambda: MessageId.parse(str(ID)),
        lambda: MessageId.of(ID),  # type: ignore[arg-type]
        lambda: MessageId.of((7, ID)),  # type: ignore[arg-type]
        lambda: MessageId.from_headers({"acker-tuple": (7, ID)}),
        lambda: MessageId.from_headers(HEADERS),
        lambda: Processing(id_of(HEADERS, "orders")),
        lambda: id_of([*HEADERS.items()], "orders"),
        lambda: Processing(TEXT).emit([f"8:{ID}"]),
        lambda: Processing(TEXT).emit([TEXT, TEXT]),
        lambda: emit_from(Processing(TEXT), Processing(TEXT)),
        lambda: ProcessingBatch([TEXT, f"[{TEXT}]"]),
        lambda: parse_entry(0, b"1-0", [*EXPIRED, b"rows", b'[["7","s",5,"idle","%xz"]]' % ID]),
    ],
)
def test_errors_show_no_id(wrong: Callable[[], Any]) -> None:
    with pytest.raises(AckerError) as raised:
        wrong()
    assert not shows(f"{raised.value} {raised.value!r}")
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_malformed_id_is_shown_by_its_shape() -> None:
    with pytest.raises(AckerError, match=r"<anchor>:<tuple>, not \"'#:##'\"$"):
        MessageId.parse("'7:40'")


def test_reprs_of_verdicts_and_states_show_no_id() -> None:
    outcome = Outcome("nack", "expired", 7, "s", 5, "", "idle", residual=ID)
    block = BlockOutcome("mixed", "expired", 5, "b", 5, 1, nacked=(0,), residuals=(ID,))
    state = BlockState(5, 1, (0,), (), outstanding=(ID,))
    tree = TreeState(7, ID, "shop", "order-1", False, "", 5, 0, block=state)
    counts = dict.fromkeys(("messages", "trees", "tracked", "acked", "failed"), 1)
    report = Report(
        query_id="q", batch_id=0, mode="driver", **counts, rejected=(), rejected_blocks=(),
        calls=1, repeated=0, bytes=1, waited_ms=0, ms=1, vanished=1, examples=(TEXT,),
    )  # fmt: skip
    verdict = Verdict(Record("order-1"), "nack", "expired", "", 5, False, 7, outcome)
    assert not shows(f"{outcome!r} {block!r} {tree!r} {report} {verdict!r}")
    assert report.examples == (TEXT,)
    assert combine([], query_id="q", batch_id=0, mode="", waited_ms=0, ms=0, changed=False)


def test_log_of_a_source_and_its_bolts_shows_no_id(
    make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    """Of records that are acked, fail and expire, and of ids that do not arrive as they were."""
    caplog.set_level(logging.DEBUG)
    acker = make_any_acker(edges=("paid",))
    ids, told = list[int](), list[str]()
    bolt = Bolt(Producer(acker, linger=0))

    def send(record: Record, sent: Any) -> None:
        (message,) = sent
        ids.extend(dict(message).values())
        if record.source_id == "acked":
            with bolt.process(message) as processing:
                ids.extend(dict(processing.emit(edge="paid")).values())
        elif record.source_id == "failed":
            bolt.process(message).fail("no")
        elif record.source_id == "broken":
            try:
                bolt.process(f"[{message}]")
            except AckerError:
                logging.getLogger("program").exception("a message is left")
        elif record.source_id == "raises":
            raise OSError("the queue is full")

    source = Source(
        acker, "shop", send, attempts=2, backoff=Backoff(0, 0),
        on_fail=lambda record, reason, why: told.append(f"{record!r} {reason} {why}"),
        dead_letter=lambda record, reason, why: told.append(f"{record!r} {reason} {why}"),
    )  # fmt: skip
    for name in ("acked", "failed", "broken", "lost", "raises"):
        source.emit(name, messages=1)
    for _ in range(30):
        source.step()
        tick(acker)
    assert source.pending == 0
    assert len(ids) > 8
    text = "\n".join([*told, caplog.text, *(str(each.__dict__) for each in caplog.records)])
    for expected in ("a message is left", "cannot send 'raises'", "no ack on edge paid"):
        assert expected in text
    assert not [number for number in ids if shows(text, number)]
