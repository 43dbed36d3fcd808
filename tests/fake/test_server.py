"""The fake server replies to scripts as a real server does, for the features that ours use."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import redis

from proof.run import play
from proof.simulate import FAULTS
from tests.conftest import missing
from tests.fake import running as fakes
from tests.fake.running import FakeRedis
from tests.waiting import wait_until

EVERY_BYTE = bytes(range(256))


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRedis]:
    if not fakes.installed():
        missing("fakeredis with Lua")
    with fakes.running() as server:
        yield server


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(fake: FakeRedis, request: pytest.FixtureRequest) -> Iterator[Any]:
    with redis.Redis.from_url(fake.url, protocol=request.param) as connected:
        connected.flushall()
        yield connected


def test_every_byte_passes_through_a_script(client: Any) -> None:
    body = """
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        return {KEYS[1], ARGV[1], redis.call('HGET', KEYS[1], ARGV[1]), #ARGV[1],
                redis.call('HMGET', KEYS[1], 'none', ARGV[1])}
    """
    key, value = b"key" + EVERY_BYTE, EVERY_BYTE[::-1]
    reply = client.eval(body, 1, key, EVERY_BYTE, value)
    assert reply == [key, EVERY_BYTE, value, 256, [None, value]]
    assert client.hgetall(key) == {EVERY_BYTE: value}


def test_histories_of_faults_agree_with_the_reference(fake: FakeRedis) -> None:
    for seed in range(10):
        assert play(seed, 40, tuple(FAULTS), url=fake.url, both=True).violation is None


def test_a_connection_outlives_an_error(client: Any) -> None:
    number = client.client_id()
    with pytest.raises(redis.ResponseError, match=r"^ACKER ARGS text$"):
        client.eval("return redis.error_reply('ACKER ARGS text')", 0)
    with pytest.raises(redis.ResponseError):
        client.eval("return nonsense(", 0)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NOSUCH")
    assert client.client_id() == number


@pytest.mark.parametrize(
    "body",
    [
        "return os.getenv('HOME')",
        "return io.open('/etc/passwd')",
        "return require('bit')",
        "a_global = 1",
        "return struct.pack('>I4', 'x')",
        "return struct.unpack('>I4', 'abc')",
        "return bit.bxor('x', 1)",
    ],
)
def test_fake_server_refuses_scripts_that_redis_refuses(client: Any, body: str) -> None:
    with pytest.raises(redis.ResponseError):
        client.eval(body, 0)
    assert client.eval("return 1", 0) == 1


def test_fake_server_ends_with_a_killed_parent() -> None:
    if not fakes.installed():
        missing("fakeredis with Lua")
    program = (
        "import time\n"
        "from tests.fake.running import running\n"
        "with running() as server:\n"
        "    print(server.port, flush=True)\n"
        "    time.sleep(3600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=fakes.ROOT, text=True
    ) as parent:
        assert parent.stdout
        assert parent.stdout.readline()
        (server,) = psutil.Process(parent.pid).children()
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: ended(server), "the fake server ends")


def ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True
