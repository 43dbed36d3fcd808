"""Problems that a route may answer with, for OpenAPI."""

from typing import Any

from acker_api.problems import MEDIA_TYPE
from acker_api.shapes.problem import ProblemDetails

_WORDS = {
    401: "Unauthorized: no token, or an unknown one",
    403: "Forbidden: the token does not allow it, or the request comes from another site",
    404: "Not Found: no such namespace, or no such pending tree",
    409: "Conflict: the namespace was written by another version, is resharding, or exists",
    413: "Content Too Large: the body exceeds the limit",
    421: "Misdirected Request: the service does not accept this host name",
    422: "Bad Request: a parameter or the body is invalid",
    429: "Too Many Requests: see Retry-After",
    502: "Redis refused a command, for example because of missing rights",
    503: "Redis does not answer, or the service cannot serve this now: see detail",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return problems that a route may answer with; 421 and 429 as for any route."""
    schema = ProblemDetails.model_json_schema()
    common = {421, 429}
    return {
        status: {"description": _WORDS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, *common})
    }


READS = (401, 403, 404, 409, 422, 502, 503)
"""For routes that read a namespace."""
ACTS = (401, 403, 404, 409, 413, 422, 502, 503)
"""For routes that change a namespace."""
