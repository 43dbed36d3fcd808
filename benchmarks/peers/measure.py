"""Measure one peer: on a separate server, in separate processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from typing import Any
from urllib.parse import urlsplit

import redis
from environments import HERE, command
from peers import Peer
from report import Loss, Row

from acker_redis.embedded import EmbeddedRedis

ROOT = HERE.parents[1]
MONITORED = 50
"""Trees of the run in which MONITOR counts the commands that are sent."""


class PeerError(Exception):
    """The program of a peer failed; the message is the last line of its stderr."""


def run(peer: Peer, verb: str, url: str, argument: int, limit: float) -> Any:
    """Run a verb of the peer's program; return what it printed, as JSON has it.

    Raises:
        PeerError: The program failed, or took longer than ``limit`` seconds.

    """
    prefix, problem = command(peer.needs)
    if problem:
        raise PeerError(problem)
    # The project's own packages for its own programs only; Celery refuses to run as root without
    # C_FORCE_ROOT.
    paths = [] if peer.needs else [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "BENCH_URL": url, "C_FORCE_ROOT": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }  # fmt: skip
    arguments = [*prefix, str(HERE / peer.program), verb, str(argument)]
    program = subprocess.Popen(
        arguments, cwd=HERE, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, err = program.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{verb} did not end within {limit:.0f} s") from None
    finally:
        if program.poll() is None:
            program.terminate()  # and it ends its workers
            try:
                program.wait(30)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
    if program.returncode:
        raise PeerError((err.strip().splitlines() or ["no message"])[-1])
    return json.loads(out) if out.strip() else None


def figures(peer: Peer, trees: int) -> Row:
    """Return the figures of a peer without those of lost messages; a failed peer is skipped."""
    try:
        with EmbeddedRedis(tcp=True) as server:
            speed = run(peer, peer.speed, server.url, trees, 400)
        with EmbeddedRedis(tcp=True) as server:
            sent = sent_commands(peer, server.url, min(trees, MONITORED))
        with EmbeddedRedis(tcp=True) as server:
            size = bytes_per_tree(peer, server.url, max(trees, trees * peer.kept // peer.trees))
    except PeerError as error:
        return Row(peer.name, peer.also, skipped=str(error))
    return Row(
        peer.name,
        peer.also,
        trees_per_s=trees / speed["seconds"],
        bytes_per_tree=size,
        sent_per_tree=sent,
        commands_per_tree=speed["commands"] / trees,
    )


def bytes_per_tree(peer: Peer, url: str, trees: int) -> float:
    """Return by how much ``used_memory`` grows for each tree, all messages emitted, none processed.

    The programs have ended when it is read, so that it holds no buffers of their connections. The
    growth of ten trees is subtracted: scripts and queues cost that once.
    """
    used = []
    for count in (10, trees):
        run(peer, peer.pending, url, count, 200)
        client = redis.Redis.from_url(url)
        used.append(client.info("memory")["used_memory"])
        client.flushall(asynchronous=False)
        client.close()
    return float(used[1] - used[0]) / max(trees - 10, 1)


def sent_commands(peer: Peer, url: str, trees: int) -> float:
    """Return the commands that clients send for a tree: those of MONITOR that no script calls."""
    monitor = Monitor(url)
    try:
        run(peer, peer.speed, url, trees, 200)
    finally:
        monitor.end()
    return monitor.sent / trees


class Monitor:
    """Count the commands between the two ECHO of ``program.py``, without those of scripts."""

    def __init__(self, url: str) -> None:
        self.sent = 0
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.sendall(f"AUTH {parts.password}\r\nMONITOR\r\n".encode())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        counting = False
        with self._socket.makefile("rb") as lines:
            for line in lines:
                if b'"bench:begin"' in line:
                    counting, self.sent = True, 0
                elif b'"bench:end"' in line:
                    counting = False
                elif counting and b"[0 lua]" not in line:
                    self.sent += 1

    def end(self) -> None:
        """Close the connection and wait for the thread."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


def losses(peer: Peer, wait: int) -> dict[str, Loss]:
    """Return the observations of trees that lost a message.

    Raises:
        PeerError: The peer's program failed.

    """
    with EmbeddedRedis(tcp=True) as server:
        seen = run(peer, "lose", server.url, wait, wait + 150)
    return {how: Loss(**loss) for how, loss in seen.items()}
