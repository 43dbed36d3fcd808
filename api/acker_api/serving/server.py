"""Runs the app in a server of its own, until it is told to end."""

import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from acker_api.auth.crowd import Crowd
from acker_api.auth.hosts import check_bind
from acker_api.http.app import create_app
from acker_api.http.services import share
from acker_api.seldom import Seldom
from acker_api.serving.patience import PatientProtocol, limit_writes
from acker_api.serving.uvicorn_server import StreamServer
from acker_api.serving.workers import ENDS, Workers
from acker_api.settings import ApiSettings
from acker_redis.errors import ConfigError
from acker_redis.logs import Event
from acker_redis.ops.settings import Settings

log = logging.getLogger("acker_api")

BACKLOG = 128
"""Connections that wait to be accepted, and that are accepted in one go before others are closed:
below the descriptors that are spare."""


def serve(settings: Settings, api_settings: ApiSettings | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, and let requests end; the exit code, 0 after either.

    With several workers it forks them, and is to be called by the main thread of a program that
    has no other; see :mod:`acker_api.serving.workers`.

    It starts also while Redis is away. Where it listens is logged, nothing is printed. Raises
    ConfigError for settings that cannot work, an address that others can reach without a token
    among them, and one that cannot be listened on.
    """
    api_settings = api_settings or ApiSettings.read()
    server, count = _server(settings, api_settings), api_settings.workers
    with _listen(api_settings.host, api_settings.port) as listener:
        url = _where(listener, api_settings)
        if count > 1:
            workers = Workers(server, listener, count, api_settings.stop_within)
            log.info(Event("serving", url=url, redis=settings.shown_url, workers=count))
            return workers.run()
        with _signals_end_quietly():
            log.info(Event("serving", url=url, redis=settings.shown_url))
            server.run(sockets=[listener])
    return 0 if server.started else 1


@contextmanager
def in_background(settings: Settings, api_settings: ApiSettings) -> Iterator[str]:
    """Serve from a thread of this program while the block runs; yields the URL.

    Raises as :func:`serve`.
    """
    server = _server(settings, api_settings)
    with _listen(api_settings.host, api_settings.port) as listener:
        thread = threading.Thread(
            target=server.run, args=([listener],), name="acker-api", daemon=True
        )
        thread.start()
        try:
            yield _where(listener, api_settings)
        finally:
            server.should_exit = True
            thread.join(api_settings.stop_within + 1)


def _server(settings: Settings, api_settings: ApiSettings) -> StreamServer:
    check_bind(api_settings)
    app = create_app(settings, api_settings)
    seldom = Seldom()

    class Protocol(PatientProtocol):
        crowd = Crowd(
            share(api_settings.max_connections, api_settings.workers),
            share(api_settings.max_connections_of_address, api_settings.workers),
            seldom,
        )

    Protocol.seldom = seldom
    config = uvicorn.Config(
        app,
        http=Protocol,
        backlog=BACKLOG,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,  # the app logs its own, without queries
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=api_settings.stop_within,
    )
    return StreamServer(config, app.state.services.live.end, seldom)


def _where(listener: socket.socket, api_settings: ApiSettings) -> str:
    """The URL of what listens; ConfigError if others can reach it, and need no token."""
    host, port = listener.getsockname()[:2]
    # The name localhost may mean whatever /etc/hosts says.
    check_bind(api_settings.model_copy(update={"host": host}))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    try:
        places = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        # A name that means both is listened on by IPv4, as 127.0.0.1 is what people write.
        family, *_, address = min(places, key=lambda place: place[0] != socket.AF_INET)
        place = (str(address[0]), port)
        both = place[0] == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(place, family=family, backlog=BACKLOG, dualstack_ipv6=both)
        # asyncio does it for sockets of its own only. Without it the body of an answer waits for
        # the other side to acknowledge its head, which that puts off for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit_writes(listener)
        return listener
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "is something else there, or the address of another machine?"
        ) from None


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Take the signals that uvicorn raises again when it has shut down, and end as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        log.info(Event("ended", by=signal.Signals(number).name))

    before = {number: signal.signal(number, ignore) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
