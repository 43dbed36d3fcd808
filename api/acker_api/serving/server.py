"""The app in a server of this process, until a signal ends it."""

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
from acker_api.limited_log import LimitedLog
from acker_api.serving.patience import PatientProtocol, limit_writes
from acker_api.serving.uvicorn_server import StreamServer
from acker_api.serving.workers import ENDS, Workers
from acker_api.settings import ApiSettings
from acker_redis.errors import ConfigError
from acker_redis.operate import Event, Settings

log = logging.getLogger("acker_api")

BACKLOG = 128
"""Connections that wait to be accepted. As many are accepted at once before others are closed, so
it is less than the spare descriptors."""


def serve(settings: Settings, api_settings: ApiSettings | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, let running requests end, and return the exit code.

    The code is 0 after either signal. With several workers it forks them; then the caller must be
    the main thread of a program without other threads, see :mod:`acker_api.serving.workers`.

    The service also starts while Redis is unavailable. It logs its address and prints nothing.
    Raise ConfigError for invalid settings, for an address that others can reach without a token,
    and for an address that it cannot listen on.
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
    """Serve from a thread of this program while the block runs; yield the URL.

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
    limited_log = LimitedLog()

    class Protocol(PatientProtocol):
        crowd = Crowd(
            share(api_settings.max_connections, api_settings.workers),
            share(api_settings.max_connections_of_address, api_settings.workers),
            limited_log,
        )

    Protocol.limited_log = limited_log
    config = uvicorn.Config(
        app,
        http=Protocol,
        backlog=BACKLOG,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,  # the app has its own access log, without queries
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=api_settings.stop_within,
    )
    return StreamServer(config, app.state.services.live.end, limited_log)


def _where(listener: socket.socket, api_settings: ApiSettings) -> str:
    """Return the URL of a listener. Raise ConfigError if others can reach it without a token."""
    host, port = listener.getsockname()[:2]
    # /etc/hosts may map the name localhost to any address.
    check_bind(api_settings.model_copy(update={"host": host}))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    try:
        places = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        # A name with addresses of both families listens on IPv4: people write 127.0.0.1.
        family, *_, address = min(places, key=lambda place: place[0] != socket.AF_INET)
        place = (str(address[0]), port)
        both = place[0] == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(place, family=family, backlog=BACKLOG, dualstack_ipv6=both)
        # asyncio sets it only for sockets that it creates. Without it, the body of an answer waits
        # up to 40 ms, until the other side acknowledges the head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit_writes(listener)
        return listener
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "does another program use the port, or is it the address of another machine?"
        ) from None


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Take the signals that uvicorn raises again after its shutdown, and end as usual."""
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
