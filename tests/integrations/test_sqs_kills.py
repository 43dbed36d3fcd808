"""A worker of SQS killed by SIGKILL at random moments: no record is lost, no ack is false."""

from pathlib import Path

import pytest

from acker_redis import Acker, Backoff, Rotator, Source
from acker_redis.integrations.sqs import SqsSender
from tests.integrations import sqs_worker
from tests.integrations.killed import Ledger
from tests.integrations.sqs import moto
from tests.integrations.test_batches import Sqs

__all__ = ["moto"]


@pytest.mark.parametrize("mode", ["messages", "batches"])
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_worker_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, mode: str, orders: Acker, moto: str, topic: str, tmp_path: Path
) -> None:
    rig, file = Sqs(orders, moto, topic), tmp_path / "done"
    url = orders.connection.client.get_connection_kwargs()
    worker = [
        "-m", sqs_worker.__name__, f"redis://{url['host']}:{url['port']}", orders.namespace, moto,
        rig.orders, rig.priced, str(file), mode,
    ]  # fmt: skip
    sender = SqsSender(orders, rig.client, rig.orders)
    source = Source(orders, "shop", sender, attempts=3, backoff=Backoff(0.05, 0.2))
    # The worker writes before its handler returns, so before the ack of the message.
    ledger = Ledger(source, file, "priced", "shipped", edge="orders")
    orders.configure(tick_ms=4000)
    with Rotator([orders]), ledger:
        for _ in range(kills):
            ledger.emit_orders(20)
            with ledger.worker(*worker):
                ledger.wait_for_work(40)
        with ledger.worker(*worker) as last:
            ledger.wait_until_closed()
            ledger.emit("poison")
            ledger.wait_until_closed()
            last.terminate()
            assert last.wait() == 0, f"seed {ledger.seed}"
    sender.close()
    ledger.check()
