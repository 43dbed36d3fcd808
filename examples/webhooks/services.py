"""The subscribers: each accepts an order by HTTP, answers 202, and processes the order later.

They share only the header ``acker-tuple`` with the source. They are idempotent: a replayed order
is processed once, and handed on each time.
"""

import asyncio
import contextlib
from email.message import Message

import httpx

from acker_redis import MessageId
from acker_redis.aio import AsyncBolt, AsyncHandle

SERVICES: dict[str, list[str]] = {
    "billing": ["mailer"],
    "mailer": [],
    "warehouse": [],
    "search": [],
}
"""Each service, and the services to which it hands its orders on."""

TROUBLE = {
    ("search", "order-2"): "busy",
    ("mailer", "order-4"): "busy",
    ("warehouse", "order-6"): "fails",
    ("search", "order-8"): "forgets",
}
"""The fault of a service when it receives an order for the first time."""


class RefusedError(Exception):
    """Raised when a service did not accept an order."""


class OutOfStockError(Exception):
    """Raised when the warehouse cannot pack an order."""


class Network:
    """Sends orders to services by their addresses."""

    def __init__(self, client: httpx.AsyncClient, addresses: dict[str, str]) -> None:
        self.client, self.addresses = client, addresses

    async def post(self, service: str, order: str, message: MessageId) -> None:
        """Send an order, its message id in a header; RefusedError if it is not accepted."""
        try:
            response = await self.client.post(
                self.addresses[service], json={"order": order}, headers=message.to_headers()
            )
        except httpx.TransportError as error:
            raise RefusedError(f"{service}: {error}") from error
        if response.is_error:
            raise RefusedError(f"{service} answered {response.status_code}")


class Service:
    """A subscriber: a bolt that reads an inbox."""

    def __init__(self, name: str, bolt: AsyncBolt, network: Network) -> None:
        self.name, self.bolt, self.network = name, bolt, network
        self.inbox = asyncio.Queue[tuple[MessageId, str]]()
        self.orders: list[str] = []
        """The orders that it has processed."""
        self.trouble = {
            order: fault for (service, order), fault in TROUBLE.items() if service == name
        }

    def receive(self, headers: Message, order: str) -> int:
        """Accept an order. The answer 202 means accepted, not processed."""
        if self.trouble.get(order) == "busy":
            del self.trouble[order]
            return 503
        self.inbox.put_nowait((MessageId.from_headers(headers.items()), order))
        return 202

    async def work(self) -> None:
        """Process orders one after the other."""
        while True:
            message, order = await self.inbox.get()
            trouble = self.trouble.pop(order, "")
            if trouble == "forgets":
                continue  # a bug: this order is lost without a trace
            with contextlib.suppress(RefusedError, OutOfStockError):  # reported to the source
                async with self.bolt.process(message) as t:
                    if trouble == "fails":
                        raise OutOfStockError(f"not enough for {order}")
                    await self.process(order, t)

    async def process(self, order: str, t: AsyncHandle) -> None:
        """Process the order once, and hand it on each time."""
        if order not in self.orders:
            self.orders.append(order)
        for service in SERVICES[self.name]:
            await self.network.post(service, order, t.emit(edge=service))
