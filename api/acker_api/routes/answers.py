"""What a route may answer besides what it is for, for OpenAPI."""

from typing import Any

from acker_api.problems import MEDIA_TYPE
from acker_api.schemas import ProblemDetails

_WORDS = {
    401: "A token is needed",
    403: "The token is not for this",
    404: "There is no such namespace",
    409: "The namespace was written by another version",
    421: "The service does not go by this name",
    422: "The request cannot be",
    502: "Redis refuses to answer, for want of rights for example",
    503: "Redis does not answer, or something is not as it must be",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems that a route may answer with, and 421, as any route."""
    schema = ProblemDetails.model_json_schema()
    return {
        status: {"description": _WORDS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, 421})
    }
