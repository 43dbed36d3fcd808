"""How a file is sent: compressed if the client accepts it, and not again if it is cached."""

from fastapi import Request, Response

from acker_api.dashboard.site import StaticFile

READ = ["GET", "HEAD"]


def answer(request: Request, file: StaticFile) -> Response:
    """Return the response to a request for a file."""
    headers = request.headers
    if file.matches(headers.get("if-none-match", "")):
        return Response(status_code=304, headers=dict(file.headers))
    zipped = file.zipped if "gzip" in headers.get("accept-encoding", "") else None
    encoding = {"Content-Encoding": "gzip"} if zipped else {}
    return Response(
        file.body if zipped is None else zipped,
        headers={**file.headers, **encoding},
        media_type=file.media_type,
    )
