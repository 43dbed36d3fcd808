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
    """What Redis holds now, as metrics.

    It answers 200 also when Redis does not: `acker_redis_up` is 0 then, and `acker_up` of every
    namespace that was known.
    """
    survey = await services.scrape.get()
    # Of hundreds of namespaces it takes a while, in which others are to be served.
    accept = request.headers.get("accept", "")
    body, media_type = await asyncio.to_thread(encode, survey, accept)
    return Response(body, media_type=media_type)
