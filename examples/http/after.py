"""Price and ship orders by HTTP: ``/orders`` adds the total, and calls ``/parcels``."""

from os import environ
from typing import Any

import httpx
from fastapi import FastAPI

from acker_redis.aio import AsyncAcker
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedRequests

SHIPPING = httpx.URL(environ["SHIPPING_URL"])

app = FastAPI()
app.add_middleware(TrackedRequests, acker=AsyncAcker.from_url(environ["ACKER_REDIS_URL"], "orders"))
client = httpx.AsyncClient(transport=TrackedAsyncTransport(hosts=[SHIPPING.host]))


@app.post("/orders/{name}")
async def price(name: str, order: dict[str, Any]) -> dict[str, Any]:
    """Add the total, and ship."""
    order["total"] = order["items"] * order["price"]
    answer = await client.post(f"{SHIPPING}/parcels/{name}", json=order)
    answer.raise_for_status()
    return order


@app.post("/parcels/{name}", status_code=202)
async def ship(name: str, order: dict[str, Any]) -> None:
    """Ship an order."""
    print("shipped", name, order["total"])
