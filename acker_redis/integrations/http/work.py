"""An HTTP request in process, and the requests that its handler has sent. No I/O.

A request that the handler sends is a child of the request in process. Who acks the child depends on
the service that answers: a service with the middleware says so in the header ``acker-tracked`` of
its response, and acks or fails the child itself. Any other service has done its work when its
response, without a server error, has been read; then the row of the handler's own request contains
the child's ack, too.
"""

from contextvars import ContextVar
from http import HTTPStatus

from acker_redis.aio.producer import AsyncProducer
from acker_redis.protocol.rows import Row
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Processing

TRACKED = "acker-tracked"
"""The header of a response whose request was received by the middleware, with an id."""
REFUSED = "refused"
"""Its value if the middleware has not handed the request to the application."""


class Work:
    """One request in process.

    Args:
        processing: The message that the request is.
        sink: Receives the rows.

    """

    __slots__ = ("_answered", "error", "processing", "sink")

    def __init__(self, processing: Processing, sink: AsyncProducer) -> None:
        self.processing = processing
        self.sink = sink
        self.error: str = ""
        """Why the message must fail: the first error of the handler, or of a request it sent."""
        self._answered: list[MessageId] = []

    def failed(self, why: str) -> None:
        """Note that the message must fail."""
        self.error = self.error or why

    def answered(self, child: MessageId) -> None:
        """Note that a service without the middleware has answered a child."""
        self._answered.append(child)

    def rows(self) -> list[Row]:
        """Close the message, and return the rows to send."""
        if not self.processing.open:
            return []  # the handler has acked or failed it
        rows = self.processing.failed(self.error) if self.error else self.processing.acked()
        for child in self._answered:
            rows += Processing(child).acked()
        return rows


def with_phrase(status: int) -> str:
    """Return a status with its name.

    >>> with_phrase(502), with_phrase(599)
    ('502 Bad Gateway', '599')
    """
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


current: ContextVar[Work | None] = ContextVar("acker_http_request", default=None)
"""The request in process."""
