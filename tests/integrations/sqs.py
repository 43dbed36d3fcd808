"""Amazon SQS for tests: the server of moto, as a separate process on a free port of loopback."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from acker_redis.embedded.guard import die_with_parent
from tests.integrations.http import free_port
from tests.waiting import wait_until


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yield its URL."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
    )
    try:
        wait_until(lambda: _answers(client(url)), "the server of moto")
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The URL of an imitation of Amazon SQS."""
    with server() as running:
        yield running


def client(url: str) -> Any:
    """Return a client that does not repeat calls by itself."""
    return boto3.client(
        "sqs", endpoint_url=url, region_name="eu-west-1", aws_access_key_id="test",
        aws_secret_access_key="test", config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


def _answers(sqs: Any) -> bool:
    try:
        sqs.list_queues()
    except BotoCoreError:
        return False
    return True
