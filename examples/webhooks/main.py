"""Send each order to its subscribers by HTTP, until all services have processed it."""

import argparse
import asyncio
import contextlib
import logging
import secrets
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from email.message import Message
from typing import Any

import httpx
from services import SERVICES, Network, Service
from web import serve

from acker_redis import Acker, AckerConfig, Backoff, OpenTree, Record, Rotator
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.embedded import EmbeddedRedis

SUBSCRIBERS = ["billing", "warehouse", "search"]
ORDERS = {f"order-{number}": SUBSCRIBERS for number in range(1, 10)}
ORDERS["order-10"] = [*SUBSCRIBERS, "legacy"]
UNREACHABLE = "http://127.0.0.1:1"
"""Address of ``legacy``: no server listens there."""
ATTEMPTS = 3
WRONG = {
    "order-2": ["failed: RefusedError: search answered 503"],
    "order-4": ["failed: RefusedError: mailer answered 503"],
    "order-6": ["failed: OutOfStockError: not enough for order-6"],
    "order-8": ["expired: no ack on edge search"],
    "order-10": ["failed: RefusedError: legacy: All connection attempts failed"] * ATTEMPTS,
}
"""The nacks that each order must get, by the faults in ``services.TROUBLE``."""


class Verdicts:
    """The verdicts that the source received for each order."""

    def __init__(self) -> None:
        self.verdicts: dict[str, str] = {}
        self.nacks = defaultdict[str, list[str]](list)

    def ack(self, order: Record) -> None:
        """Record that all services have processed the order."""
        self.verdicts[order.source_id] = "done"

    def nack(self, order: Record, reason: str, why: str) -> None:
        """Record the reason of a nack, without the times of an expired order."""
        self.nacks[order.source_id].append(f"{reason}: {why.split(';')[0]}")

    def dead_letter(self, order: Record, reason: str, why: str) -> None:
        """Record that the last attempt failed; a real program would store the order here."""
        self.verdicts[order.source_id] = "dead letter"

    def is_right(self) -> bool:
        """Return whether each order has the expected verdict, after the expected nacks."""
        return all(
            self.verdicts[order] == ("dead letter" if order == "order-10" else "done")
            and self.nacks[order] == WRONG.get(order, [])
            for order in ORDERS
        )

    def show(self) -> None:
        """Print a table."""
        print(f"{'order':9}{'attempts':10}{'verdict':13}last failure")
        for order in ORDERS:
            verdict, nacks = self.verdicts[order], self.nacks[order]
            attempts = len(nacks) + (verdict == "done")
            print(f"{order:9}{attempts:<10}{verdict:13}{nacks[-1] if nacks else ''}".rstrip())


@contextlib.asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless coroutines until the block ends, then cancel them."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def rotate(acker: Acker, received: Verdicts) -> None:
    """Force the ticks after all other orders have their verdict, so that the lost order expires.

    A real rotator ticks by the clock, every 30 s by default. Forced ticks save the wait, and on a
    slow machine no other order expires.
    """
    while len(received.verdicts) < len(ORDERS) - 1:
        await asyncio.sleep(0.1)
    for _ in range(acker.config.buckets):
        await asyncio.to_thread(Rotator([acker]).step, force=True)


async def run(url: str) -> bool:
    """Deliver all orders; return whether all verdicts and the work of all services are right."""
    namespace, received = f"webhooks-{secrets.token_hex(4)}", Verdicts()
    services: dict[str, Service] = {}
    print(f"{len(ORDERS)} orders, {len(SERVICES)} services", flush=True)

    def receive(path: str, headers: Message, body: Any) -> int:
        return services[path.strip("/")].receive(headers, body["order"])

    async with (
        AsyncAcker.from_url(url, namespace) as acker,
        AsyncProducer(acker) as producer,
        serve(receive) as web,
        httpx.AsyncClient(timeout=60) as client,
    ):
        # An edge for each service: the verdict of a lost order names the service that got it last.
        await acker.create(AckerConfig(buckets=2, edges=(*SERVICES, "legacy")))
        network = Network(
            client, {name: f"{web}/{name}" for name in SERVICES} | {"legacy": UNREACHABLE}
        )
        services |= {name: Service(name, AsyncBolt(producer), network) for name in SERVICES}
        workers = [service.work() for service in services.values()]

        async def send(order: Record, tree: OpenTree) -> None:
            posts = [(name, tree.emit(edge=name)) for name in order.value]
            await asyncio.gather(*(network.post(name, order.source_id, one) for name, one in posts))

        source = AsyncSource(
            acker,
            "shop",
            send,
            on_ack=received.ack,
            on_fail=received.nack,
            dead_letter=received.dead_letter,
            attempts=ATTEMPTS,
            backoff=Backoff(0.2),
        )
        with Acker.from_url(url, namespace) as other:
            async with in_background(*workers, rotate(other, received)), source:
                for order, subscribers in ORDERS.items():
                    await source.emit(order, subscribers, messages=None)
                await source.join()

    received.show()
    for name, service in services.items():
        print(f"{name} has processed {len(service.orders)} orders")
    once = all(sorted(service.orders) == sorted(ORDERS) for service in services.values())
    return once and received.is_right()


def main() -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="default: an embedded server")
    url = parser.parse_args().redis
    logging.getLogger("acker_redis").setLevel(logging.ERROR)  # failed requests are in the table
    with contextlib.nullcontext() if url else EmbeddedRedis() as own:
        right = asyncio.run(run(own.url if own else url))
    print("Each order is accounted for." if right else "Some order is NOT accounted for.")
    return not right


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
