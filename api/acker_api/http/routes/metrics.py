"""Metrics for Prometheus."""

import asyncio

from fastapi import APIRouter, Request, Response

from acker_api.auth.tokens import Role
from acker_api.http.access import require
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.reading.metrics import encode

router = APIRouter(tags=["metrics"], dependencies=[require(Role.METRICS)])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "All metrics, in the text format of Prometheus or OpenMetrics",
            "content": {"text/plain": {"example": 'acker_up{namespace="orders"} 1.0\n'}},
        },
        **answers(401, 403),
    },
)
async def metrics(services: Shared, request: Request) -> Response:
    """Return all metrics, read from Redis now.

    The answer is 200 also if Redis does not answer: `acker_redis_up` is 0 then, and `acker_up` of
    every known namespace.
    """
    survey = await services.scrape.get()
    # Encoding hundreds of namespaces takes a while; other requests are served in the meantime.
    accept = request.headers.get("accept", "")
    body, media_type = await asyncio.to_thread(encode, survey, accept)
    return Response(body, media_type=media_type)
