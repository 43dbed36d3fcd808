"""An HTTP request in process, and who acks the requests that its handler has sent. No I/O.

A request that the handler sends is a child of the request in process. Who acks the child depends on
the service that answers: a service with the middleware says so in the header ``acker-tracked`` of
its response, and acks or fails the child itself. Any other service has done its work when its
response, without a server error, has been read; then the row of the handler's own request contains
the child's ack, too.
"""

from http import HTTPStatus
from typing import Any, NamedTuple

TRACKED = "acker-tracked"
"""The header of a response whose request was received by the middleware, with an id."""
REFUSED = "refused"
"""Its value if the middleware has not handed the request to the application."""


class Request(NamedTuple):
    """A request with an id that the middleware has received."""

    sink: Any
    """Receives its rows: an AsyncProducer."""


def with_phrase(status: int) -> str:
    """Return a status with its name.

    >>> with_phrase(502), with_phrase(599)
    ('502 Bad Gateway', '599')
    """
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
