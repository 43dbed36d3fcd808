"""A small web server, so that the example needs no framework."""

import asyncio
import contextlib
import email
import http
import json
from collections.abc import AsyncIterator, Callable
from email.message import Message
from typing import Any

Receive = Callable[[str, Message, Any], int]
"""Receives the path, headers and JSON of a request, and returns the status of the response."""


@contextlib.asynccontextmanager
async def serve(receive: Receive) -> AsyncIterator[str]:
    """Serve on a free port of the loopback interface, and yield the URL."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
                headers = email.message_from_bytes(rest)
                body = await reader.readexactly(int(headers["content-length"]))
                status = http.HTTPStatus(
                    receive(request.split()[1].decode(), headers, json.loads(body))
                )
                answer = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-length: 0\r\n\r\n"
                writer.write(answer.encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
