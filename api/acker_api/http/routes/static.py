"""How a file is sent: in parts, compressed if the client accepts it, and not if it is cached."""

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from acker_api.dashboard.site import StaticFile

READ = ["GET", "HEAD"]
PART = 65536
"""Bytes that are sent at once: an answer that its client does not read holds no more in memory."""


def answer(request: Request, file: StaticFile) -> Response:
    """Return the response to a request for a file."""
    headers = request.headers
    if file.matches(headers.get("if-none-match", "")):
        return Response(status_code=304, headers=dict(file.headers))
    zipped = file.zipped if "gzip" in headers.get("accept-encoding", "") else None
    encoding = {"Content-Encoding": "gzip"} if zipped else {}
    return InParts(
        file.body if zipped is None else zipped,
        headers={**file.headers, **encoding},
        media_type=file.media_type,
    )


class InParts(Response):
    """A response that sends each part after the client has read the one before (back-pressure).

    All responses with the same body share it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        body = b"" if scope["method"] == "HEAD" else self.body
        for end in range(PART, len(body) + PART, PART):
            part = {"body": body[end - PART : end], "more_body": end < len(body)}
            await send({"type": "http.response.body", **part})
        if not body:
            await send({"type": "http.response.body"})
