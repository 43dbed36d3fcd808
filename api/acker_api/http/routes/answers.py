"""What a route may answer besides what it is for, for OpenAPI."""

from typing import Any

from acker_api.problems import MEDIA_TYPE
from acker_api.shapes.status import ProblemDetails

_WORDS = {
    401: "A token is needed",
    403: "The token is not for this, or the request comes from another site",
    404: "There is no such namespace, or no such tree",
    409: "The namespace was written by another version, moves, or is there already",
    413: "The body is too large",
    421: "The service does not go by this name",
    422: "The request cannot be",
    429: "Too many requests",
    502: "Redis refuses to answer, for want of rights for example",
    503: "Redis does not answer, or something is not as it must be",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems that a route may answer with; 421 and 429, as any route."""
    schema = ProblemDetails.model_json_schema()
    common = {421, 429}
    return {
        status: {"description": _WORDS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, *common})
    }


READS = (401, 403, 404, 409, 422, 502, 503)
"""Of what is read of a namespace."""
ACTS = (401, 403, 404, 409, 413, 422, 502, 503)
"""Of what is done to one."""
