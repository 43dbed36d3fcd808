"""How a file is sent: packed where that is taken, and not again to who has it."""

from fastapi import Request, Response

from acker_api.dashboard.site import StaticFile

READ = ["GET", "HEAD"]


def answer(request: Request, file: StaticFile) -> Response:
    """The response to a request of a file."""
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
