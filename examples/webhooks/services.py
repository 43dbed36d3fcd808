"""The subscribers: each takes an order by HTTP, says so, and processes it afterwards.

They share nothing with the source but the header ``acker-tuple``. What is sent again, since
something else went wrong with the same order, is done once and handed on each time.
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
"""The services, and to which others each hands its orders on."""

TROUBLE = {
    ("search", "order-2"): "busy",
    ("mailer", "order-4"): "busy",
    ("warehouse", "order-6"): "fails",
    ("search", "order-8"): "forgets",
}
"""What goes wrong when a service gets an order for the first time."""


class RefusedError(Exception):
    """A service did not take an order."""


class OutOfStockError(Exception):
    """The warehouse cannot pack an order."""


class Network:
    """Sends orders to services, each by its address."""

    def __init__(self, client: httpx.AsyncClient, addresses: dict[str, str]) -> None:
        self.client, self.addresses = client, addresses

    async def post(self, service: str, order: str, message: MessageId) -> None:
        """Hand an order over, the message's id in a header; RefusedError if it was not taken."""
        try:
            response = await self.client.post(
                self.addresses[service], json={"order": order}, headers=message.to_headers()
            )
        except httpx.TransportError as error:
            raise RefusedError(f"{service}: {error}") from error
        if response.is_error:
            raise RefusedError(f"{service} answered {response.status_code}")


class Service:
    """A subscriber: a bolt behind an inbox."""

    def __init__(self, name: str, bolt: AsyncBolt, network: Network) -> None:
        self.name, self.bolt, self.network = name, bolt, network
        self.inbox = asyncio.Queue[tuple[MessageId, str]]()
        self.orders: list[str] = []
        """What it has processed."""
        self.trouble = {order: what for (who, order), what in TROUBLE.items() if who == name}

    def receive(self, headers: Message, order: str) -> int:
        """Take an order: 202 says that it was taken, and nothing of what becomes of it."""
        if self.trouble.get(order) == "busy":
            del self.trouble[order]
            return 503
        self.inbox.put_nowait((MessageId.from_headers(headers.items()), order))
        return 202

    async def work(self) -> None:
        """Process one order after the other."""
        while True:
            message, order = await self.inbox.get()
            trouble = self.trouble.pop(order, "")
            if trouble == "forgets":
                continue  # a bug: nobody hears of this order again
            with contextlib.suppress(RefusedError, OutOfStockError):  # the source hears of it
                async with self.bolt.process(message) as t:
                    if trouble == "fails":
                        raise OutOfStockError(f"not enough for {order}")
                    await self.process(order, t)

    async def process(self, order: str, t: AsyncHandle) -> None:
        """Do what the order is for, once, and hand it on."""
        if order not in self.orders:
            self.orders.append(order)
        for service in SERVICES[self.name]:
            await self.network.post(service, order, t.emit())
