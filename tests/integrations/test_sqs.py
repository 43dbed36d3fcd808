"""Messages of Amazon SQS, on the server of moto: acks, failures, leases, doubts and batches."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from acker_redis import Acker, ClosedError, ConfigError, MessageId, Source
from acker_redis.integrations.core.settling import Leased
from acker_redis.integrations.core.work import current
from acker_redis.integrations.sqs import SqsSender, SqsWorker
from acker_redis.integrations.sqs.queue import Sqs as SqsQueue
from acker_redis.protocol.keys import ShardKeys
from tests.integrations.sqs import moto
from tests.integrations.test_batches import Sqs, open_ids
from tests.integrations.test_kafka import track, verdicts
from tests.support import tick
from tests.waiting import wait_until

__all__ = ["moto"]

AWAY = EndpointConnectionError(endpoint_url="http://sqs")
_THROTTLED = {"Error": {"Code": "Throttling"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
BUSY = ClientError(_THROTTLED, "SendMessageBatch")


@pytest.fixture
def rig(orders: Acker, moto: str, topic: str) -> Sqs:
    return Sqs(orders, moto, topic)


def handle(worker: SqsWorker, handler: Callable[[Any], object], count: int = 1) -> None:
    """Let a worker handle one batch, without its end."""
    worker._reader._pace.fits = 10  # type: ignore[attr-defined]
    found = worker._read(10, 0)
    assert len(found) == count
    for key, message in found:
        worker.handle(key, message, handler)
    worker.settle()


def fails(error: Exception, times: int = 1) -> Callable[..., Any]:
    left = [error] * times

    def call(*_: Any, **__: Any) -> Any:
        if left:
            raise left.pop()
        return {}

    return call


def test_message_is_deleted_when_it_is_acked_with_its_children(rig: Sqs) -> None:
    rig.put("hat")
    seen = []

    def price(message: Any) -> None:
        seen.append((message["Body"], worker.key == message["MessageId"]))
        worker.send(
            rig.priced, "19", edge="priced",
            MessageAttributes={**message["MessageAttributes"],
                               "trace": {"DataType": "Binary", "BinaryValue": b"x"}},
        )  # fmt: skip

    with rig.worker() as worker:
        handle(worker, price)
    assert seen == [("hat", True)]
    assert rig.confirmed() == 1
    (child,) = rig.children(1)
    assert open_ids(rig, [child])
    (id_,) = child.values()
    assert rig.acker.ids.edges_of(id_) == ("priced",)


def test_sqs_messages_of_ended_trees_are_skipped(rig: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS has another clock: a message must be older than a tree lives, and ten minutes more."""
    meta, client = ShardKeys(rig.acker.namespace, 0).meta, rig.acker.connection.client
    tick(rig.acker)
    _, until, run = client.hget(meta, "whole").decode().split(":")
    client.hset(meta, "whole", f"{int(until) - 7_200_000}:{until}:{run}")
    rig.put("live")
    rig.put("young", "ended", headers={"acker-tuple": "1:7"})
    seen: list[str] = []
    sent_ms = SqsQueue.sent_ms

    def older(self: SqsQueue, key: Any, body: Any) -> int | None:
        sent = sent_ms(self, key, body)
        assert sent is not None
        assert abs(sent - time.time() * 1000) < 60_000
        return sent - (600_000 if body["Body"] == "young" else 3_600_000)

    monkeypatch.setattr(SqsQueue, "sent_ms", older)
    with rig.worker(skip_ended=True) as worker:
        handle(worker, lambda message: seen.append(message["Body"]), 2)
        assert (sorted(seen), worker.skipped) == (["live", "young"], 1)
    assert rig.confirmed() == 3


def test_id_may_be_a_binary_attribute(rig: Sqs) -> None:
    """A message whose id is overlooked is processed untracked, and so are its children."""
    ((_, _, headers),) = track(rig.acker, "hat")
    given = {n: {"DataType": "Binary", "BinaryValue": v.encode()} for n, v in headers.items()}
    rig.client.send_message(QueueUrl=rig.orders, MessageBody="hat", MessageAttributes=given)
    with rig.worker() as worker:
        handle(worker, lambda _: None)
    assert verdicts(rig.acker) == {"hat": ("ack", "")}


def test_failed_message_is_told_and_deleted(rig: Sqs) -> None:
    rig.put("hat")

    def broken(_: Any) -> None:
        raise ValueError("no such address")

    def park(message: Any, error: BaseException) -> None:
        worker.send(rig.priced, f"{message['Body']}: {error}", **{
            "MessageAttributes": message["MessageAttributes"],
        })  # fmt: skip

    with rig.worker(on_failure=park) as worker:
        handle(worker, broken)
    assert verdicts(rig.acker) == {"hat": ("nack", "ValueError: no such address")}
    assert rig.confirmed() == 1
    assert rig.children(1) == [MessageId()], "a dead letter is not tracked"


def test_failure_of_a_message_without_an_id_ends_the_worker(rig: Sqs) -> None:
    rig.put("hat", headers={})
    with pytest.raises(ValueError, match="no such address"):
        rig.worker().run(lambda _: (_ for _ in ()).throw(ValueError("no such address")))
    assert rig.confirmed() == 0


def test_slow_worker_discards_a_message_that_another_has(rig: Sqs) -> None:
    rig.put("hat")

    def slow(message: Any) -> None:
        work = current(Leased)
        assert work
        work.message.since -= 60  # its visibility timeout has passed
        rig.client.change_message_visibility(
            QueueUrl=rig.orders, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
        with rig.worker() as other:
            handle(other, lambda _: None)
        worker.send(rig.priced, "19")
        with pytest.raises(ClosedError, match="taken message"):
            worker.renew()

    with rig.worker() as worker:
        handle(worker, slow)
    assert verdicts(rig.acker) == {"hat": ("ack", "")}
    rig.children(0)


def test_renewed_message_has_the_visibility_timeout_again(
    rig: Sqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("hat")
    calls: list[Any] = []
    change = rig.client.change_message_visibility
    monkeypatch.setattr(
        rig.client, "change_message_visibility", lambda **k: (calls.append(k), change(**k))
    )

    def renews(message: Any) -> None:
        work = current(Leased)
        assert work
        work.message.since -= 50
        worker.renew()

    with rig.worker(lease=60) as worker:
        handle(worker, renews)
    assert [each["VisibilityTimeout"] for each in calls] == [60]
    assert verdicts(rig.acker) == {"hat": ("ack", "")}


@pytest.mark.parametrize("error", [AWAY, BUSY], ids=["away", "busy"])
def test_message_stays_if_it_is_unknown_whether_its_child_was_sent(
    rig: Sqs, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rig.put("hat")
    monkeypatch.setattr(rig.client, "send_message_batch", fails(error))
    worker = rig.worker()
    with pytest.raises(type(error)):
        handle(worker, lambda _: worker.send(rig.priced, "19"))
    worker.close()
    assert (verdicts(rig.acker), rig.confirmed()) == ({}, 0)


def test_message_that_was_acked_and_not_deleted_is_acked_once(
    rig: Sqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("hat")
    worker = rig.worker()
    with monkeypatch.context() as patch:
        patch.setattr(rig.client, "delete_message_batch", fails(AWAY))
        ((key, message),) = worker._read(1, 0)
        with pytest.raises(EndpointConnectionError):
            worker.handle(key, message, lambda _: None)
    rig.client.change_message_visibility(
        QueueUrl=rig.orders, ReceiptHandle=key, VisibilityTimeout=0
    )
    with worker:
        handle(worker, lambda _: None)
    assert verdicts(rig.acker) == {"hat": ("ack", "")}
    assert rig.confirmed() == 1


def test_children_travel_in_tens_and_a_refused_one_fails_its_message_only(rig: Sqs) -> None:
    rig.put("many", "refused", "torn", "no text")
    sizes: list[int] = []
    send = rig.client.send_message_batch
    rig.client.send_message_batch = lambda **k: sizes.append(len(k["Entries"])) or send(**k)

    def price(message: Any) -> None:
        if message["Body"] == "many":
            for n in range(23):
                worker.send(rig.priced, str(n))
        elif message["Body"] == "no text":
            worker.send(rig.priced, 19)  # type: ignore[arg-type]
        elif message["Body"] == "refused":
            worker.send(f"{rig.priced}-missing", "19")
        else:
            worker.send(rig.priced, "19", MessageAttributes={"trace": {"DataType": "Torn"}})

    with rig.worker() as worker:
        handle(worker, price, 4)
    assert max(sizes) == 10
    assert open_ids(rig, rig.children(23))
    found = verdicts(rig.acker)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "refused": "nack", "torn": "nack", "no text": "nack",
    }  # fmt: skip
    assert "QueueDoesNotExist" in found["refused"][1] or "NonExistent" in found["refused"][1]
    assert rig.confirmed() == 4


def test_run_gives_messages_back_and_survives_an_outage(
    rig: Sqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker_redis.integrations.core.worker.PAUSE", 0.01)
    rig.put(*"abc")
    handled: list[str] = []
    receive, errors = rig.client.receive_message, [AWAY]

    def fails_once(**options: Any) -> Any:
        if errors:
            raise errors.pop()
        return receive(**options)

    monkeypatch.setattr(rig.client, "receive_message", fails_once)

    def ends(message: Any) -> None:
        handled.append(message["Body"])
        signal.raise_signal(signal.SIGTERM)

    worker = rig.worker()
    worker._reader._pace.fits = 3  # type: ignore[attr-defined]
    worker.run(ends)
    assert len(handled) == 1
    with rig.worker() as other:
        handle(other, lambda m: handled.append(m["Body"]), 2)
    assert sorted(handled) == ["a", "b", "c"]
    assert verdicts(rig.acker) == dict.fromkeys("abc", ("ack", ""))


def test_refusal_that_lasts_ends_the_worker(rig: Sqs) -> None:
    worker = SqsWorker(rig.acker, rig.client, f"{rig.orders}-missing", wait=0)
    with pytest.raises(ClientError, match="does not exist"):
        worker.run(pytest.fail)


def test_sender_reports_what_sqs_refuses(rig: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: dict[str, str] = {}
    sender = SqsSender(rig.acker, rig.client, rig.orders)
    source = Source(
        rig.acker, "shop", sender, attempts=1,
        on_ack=lambda record: ended.update({record.source_id: ""}),
        on_fail=lambda record, reason, why: ended.update({record.source_id: why}),
    )  # fmt: skip
    with source, rig.worker() as worker:
        for n in range(25):
            source.emit(f"order-{n}", f"hat {n}")
        source.emit("torn", 7)
        thread = threading.Thread(target=worker.run, args=(lambda _: None,))
        thread.start()
        assert source.join(60)
        worker.stop()
        thread.join()
        assert ended.pop("torn").startswith("ParamValidationError")
        assert ended == {f"order-{n}": "" for n in range(25)}
        monkeypatch.setattr(rig.client, "send_message_batch", fails(AWAY))
        source.emit("shoe", "a shoe")
        wait_until(lambda: "shoe" in ended, "the failure")
        assert ended["shoe"].startswith("EndpointConnectionError")
    sender.close()


def test_fifo_queue_keeps_one_copy_of_a_child_with_a_derived_id(
    rig: Sqs, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = f"{topic}-2.fifo", {"FifoQueue": "true"}
    rig.priced = rig.client.create_queue(QueueName=name, Attributes=settings)["QueueUrl"]
    rig.put("hat")

    def price(message: Any) -> None:
        worker.send(rig.priced, "19", child="priced", MessageGroupId="hats")

    with monkeypatch.context() as patch:
        worker = rig.worker()
        patch.setattr(worker._sink, "flush", fails(AWAY))
        ((key, message),) = worker._read(1, 0)
        with pytest.raises(EndpointConnectionError):
            worker.handle(key, message, price)
    rig.client.change_message_visibility(
        QueueUrl=rig.orders, ReceiptHandle=key, VisibilityTimeout=0
    )
    with worker:
        handle(worker, price)
    rig.children(1)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"lease": 3}, "lease"), ({"lease": 60.0}, "lease"), ({"wait": 21}, "wait is 0 to 20")],
)
def test_invalid_settings_are_refused(rig: Sqs, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        rig.worker(**options)
