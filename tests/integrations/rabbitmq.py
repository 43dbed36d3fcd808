"""A RabbitMQ broker for tests: Debian's server, as a separate process with all files in a folder.

Its ports are free ones on loopback, its node has a name, a separate cookie and a separate ``epmd``,
and no plugin runs: it neither sees nor disturbs a broker of the machine.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika

from acker_redis.embedded.guard import die_with_parent
from tests.waiting import wait_until

# Debian's command in PATH refuses to run as other users than root and rabbitmq.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

# One scheduler: the tests run beside others, and idle schedulers would wait busily.
ERLANG = "+S 1:1 +SDio 1 +sbwt none +sbwtdcpu none +sbwtdio none"


def lacks() -> str | None:
    """Return the program that is missing to run a broker, or None."""
    if not PROGRAM.exists():
        return "rabbitmq-server (of Debian)"
    return None if shutil.which("epmd") else "epmd (of Erlang)"


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker with its files in a folder; yield its URL."""
    port, distribution, names = _free_ports(3)
    plugins = folder / "enabled_plugins"
    plugins.write_text("[].\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
        "HOME": str(folder),  # Erlang's cookie
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"acker-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            f"{ERLANG} -kernel inet_dist_use_interface {{127,0,0,1}}"
        ),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, with the same pid
    }
    log = folder / "output"
    url = f"amqp://127.0.0.1:{port}/%2F"
    started: list[subprocess.Popen[bytes]] = []
    try:
        # The node would start an epmd that outlives it, if none answered.
        epmd = ["epmd", "-port", str(names), "-address", "127.0.0.1"]
        for command, listens in ((epmd, names), ([str(PROGRAM)], port)):
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command, env=environment, cwd=folder, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    preexec_fn=die_with_parent(),
                )  # fmt: skip
            started.append(process)

            def answers(process: Any = process, listens: int = listens) -> bool:
                assert process.poll() is None, log.read_text()
                with socket.socket() as tried:
                    return not tried.connect_ex(("127.0.0.1", listens))

            wait_until(answers, command[0], 0.05)
        yield url
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def connect(url: str) -> Any:
    """Return a connection."""
    return pika.BlockingConnection(pika.URLParameters(url))


def count(channel: Any, queue: str) -> int:
    """Return the number of messages that wait in a queue."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
