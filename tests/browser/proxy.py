"""A reverse proxy at a sub path, as nginx, Caddy and Traefik are set up for one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from acker_api.serving.server import _listen
from tests.waiting import LIMIT, wait_until

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Proxy:
    """Passes requests below ``path`` on to ``target``, without the path if it ``strips`` it."""

    def __init__(self, target: str, path: str, strips: bool) -> None:
        self.target, self.path, self.strips = target, path, strips
        self.refused: list[str] = []
        """Requests outside of the path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the ``Host`` header stays as it is."""
        request = Request(scope, receive)
        path = scope["path"]
        if not f"{path}/".startswith(f"{self.path}/"):
            self.refused.append(path)
            await PlainTextResponse("not below the path", 404)(scope, receive, send)
            return
        if self.strips:
            path = path.removeprefix(self.path) or "/"
        url = httpx.URL(self.target, raw_path=path.encode() + b"?" + scope["query_string"])
        async with httpx.AsyncClient(timeout=LIMIT) as client:
            sent = client.build_request(
                request.method, url, headers=request.headers.raw, content=await request.body()
            )
            answer = await client.send(sent, stream=True)
            response = StreamingResponse(answer.aiter_raw(), answer.status_code)
            response.raw_headers = [
                (name.lower(), value)
                for name, value in answer.headers.raw
                if name.lower().decode() not in HOP_BY_HOP
            ]
            try:
                await response(scope, receive, send)
            except ClientDisconnect:
                pass
            finally:
                await answer.aclose()


@contextmanager
def proxied(target: str, path: str, strips: bool) -> Iterator[tuple[Proxy, str]]:
    """Run a proxy; yield it and its URL, which ends without the path."""
    proxy = Proxy(target, path, strips)
    config = uvicorn.Config(
        proxy, lifespan="off", log_config=None, proxy_headers=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with _listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_until(lambda: server.started, "the proxy listens")
        yield proxy, f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()
