"""Commands that run services, rotator and serve; and rotate, one tick by hand."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add, complete_namespace
from acker_redis.cli.output import Exit, say, say_json, warn
from acker_redis.cli.programs import program
from acker_redis.errors import RedisUnavailableError
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from acker_redis.ops.settings import Settings

log = logging.getLogger(__name__)


def rotator(
    namespaces: Annotated[
        list[str] | None,
        typer.Argument(help="Namespaces to rotate", autocompletion=complete_namespace),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Rotate all namespaces, also those created later")
    ] = False,
    once: Annotated[
        bool, typer.Option(help="Tick and drain once where due, then exit; for cron")
    ] = False,
    heartbeat_file: Annotated[
        Path | None,
        typer.Option(help="File to touch each second, unless the rotator hangs; for --check"),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(help="Only check the age of --heartbeat-file; for a health check"),
    ] = False,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log JSON, one object per line")] = False,
) -> None:
    """Run the rotator until SIGTERM or Ctrl-C. Several may serve the same namespaces.

    The rotator logs to stderr. Run two on different machines: without a rotator, no tree expires.
    """
    from acker_redis import logs
    from acker_redis.rotator import service as rotator_service

    if check:
        _check(heartbeat_file)
        return
    if bool(namespaces) == every:
        raise typer.BadParameter("give either namespaces or --all")
    settings = options.settings(url, log_format="json" if as_json else None)
    logs.set_up(settings.log_level, settings.log_format)
    stop = _stopped_by_signals()
    client = _connect(settings, stop, patient=not once)
    if client is None:
        return
    try:
        code = rotator_service.serve(
            client, namespaces or None, once=once, stop=stop, heartbeat_file=heartbeat_file
        )
    finally:
        client.close()
    raise typer.Exit(code)


def _stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    return stop


def _connect(settings: Settings, stop: threading.Event, patient: bool) -> Any:
    """Return a client, if ``patient`` after waiting for a cluster; None once ``stop`` is set."""
    pause = 0.5
    while True:
        try:
            return settings.connect()
        except RedisUnavailableError as error:
            if not patient:
                raise
            log.warning("cannot connect (retry in %.1f s): %s", pause, error)
        if stop.wait(pause):
            return None
        pause = min(2 * pause, 10.0)


def _check(heartbeat_file: Path | None) -> None:
    from acker_redis.rotator import heartbeat

    if not heartbeat_file:
        raise typer.BadParameter("--check needs --heartbeat-file FILE")
    if wrong := heartbeat.check(heartbeat_file):
        warn(wrong)
        raise typer.Exit(Exit.FAILED)
    say(f"{heartbeat_file}: fresh, the rotator does not hang")


def rotate(
    namespace: Namespace,
    force: Annotated[bool, typer.Option(help="Tick each shard once, even if not due")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Tick and drain once each shard that is due, as a rotator does continuously.

    With --force each shard ticks: every pending tree ages by one tick, and the oldest trees expire.
    """
    from acker_redis.rotator.rotator import Rotator

    with options.acker(namespace, url) as acker:
        before = acker.status()
        Rotator(acker).step(force=force)
        after = acker.status()
    ticked = sum(
        new.ticked_ms != old.ticked_ms
        for old, new in zip(before.shards, after.shards, strict=False)
    )
    expired = after.counters["expired"] - before.counters["expired"]
    if as_json:
        say_json({"namespace": namespace, "shards_ticked": ticked, "expired": expired})
    else:
        say(
            f"{namespace}: {ticked} of {count_of(len(after.shards), 'shard')} ticked, "
            f"{count_of(expired, 'tree')} expired"
        )


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (env: ACKER_REDIS_API_HOST)")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on (env: ACKER_REDIS_API_PORT)", min=0, max=65535),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of worker processes (env: ACKER_REDIS_API_WORKERS; default: 1)",
            min=1,
            max=64,
        ),
    ] = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log JSON, one object per line")] = False,
) -> None:
    """Serve the admin service: dashboard, /api/v1, /metrics, /livez and /readyz.

    By default the service listens on loopback. It refuses to listen elsewhere without a token.
    """
    from acker_redis import logs

    run = program("serve", extra="api")
    settings = options.settings(url, log_format="json" if as_json else None)
    logs.set_up(settings.log_level, settings.log_format)
    raise typer.Exit(run(settings, host=host, port=port, workers=workers))


PANEL = "Services"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(app, PANEL, rotator, "rotator orders payments", "rotator --all")
    add(app, PANEL, rotate, "rotate orders --force")
    add(app, PANEL, serve, "serve --port 8000", "serve --workers 4")
