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
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.embedded import EmbeddedRedis
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


def evaluate(server: FakeRedis | EmbeddedRedis, body: str, *args: object) -> Any:
    with redis.Redis.from_url(server.url) as client:
        return client.eval(body, 0, *args)


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


# bit and struct are our own modules in plain Lua; a real server is the oracle.

BITS = """
local a, b, by = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
return {bit.bxor(a, b), bit.band(a, b), bit.bor(a, b), bit.bnot(a), bit.tobit(a),
        bit.lshift(a, by), bit.rshift(a, by), bit.tohex(a), bit.tohex(a, 4), bit.tohex(a, -3),
        bit.bxor(a, b, a), bit.bxor(ARGV[1], ARGV[2]), bit.bor(b), bit.bxor(a / 4, b / 2)}
"""
whole = st.integers(-(2**51), 2**51)


@given(a=whole, b=whole, by=st.integers(-64, 64))
def test_bit_agrees_with_a_real_server(
    any_server: EmbeddedRedis, fake: FakeRedis, a: int, b: int, by: int
) -> None:
    assert evaluate(fake, BITS, a, b, by) == evaluate(any_server, BITS, a, b, by)


NUMBERS = """
local data = struct.pack(ARGV[1], unpack(ARGV, 3))
local values = {struct.unpack(ARGV[1], data .. ARGV[2])}
for i = 1, #values do values[i] = string.format('%.17g', values[i]) end
return {data, values}
"""
FORMATS = st.lists(
    st.sampled_from([">", "<", " ", *"bBhHiIlL", *(f"{c}{n}" for c in "iI" for n in range(1, 9))]),
    min_size=1,
    max_size=12,
)
exact = st.lists(st.integers(-(2**53), 2**53), min_size=12, max_size=12)


@given(form=FORMATS, numbers=exact, more=st.binary(max_size=3))
def test_struct_packs_numbers_as_a_real_server(
    any_server: EmbeddedRedis, fake: FakeRedis, form: list[str], numbers: list[int], more: bytes
) -> None:
    args = ("".join(form), more, *numbers)
    assert evaluate(fake, NUMBERS, *args) == evaluate(any_server, NUMBERS, *args)


@given(data=st.binary(min_size=8, max_size=8), form=st.sampled_from([">I8", ">i8", "<I8", "<i8"]))
def test_struct_rounds_as_a_real_server(
    any_server: EmbeddedRedis, fake: FakeRedis, data: bytes, form: str
) -> None:
    body = "return string.format('%.17g', (struct.unpack(ARGV[1], ARGV[2])))"
    assert evaluate(fake, body, form, data) == evaluate(any_server, body, form, data)


STRINGS = """
local data = struct.pack('>I2c0Bc' .. #ARGV[1] + 1 .. ' <I3 c0', #ARGV[1], ARGV[1], 7,
  ARGV[1] .. '+', 258, ARGV[2])
local a, b, c, d, at = struct.unpack('>I2c0Bc' .. #ARGV[1] + 1 .. '<I3', data)
local rest, e = struct.unpack('c' .. #ARGV[2] + 0, data .. '!', at), nil
return {data, a, b, c, d, at, struct.unpack('>I2', data), rest}
"""


@given(text=st.binary(max_size=300), more=st.binary(min_size=1, max_size=20))
def test_struct_packs_strings_as_a_real_server(
    any_server: EmbeddedRedis, fake: FakeRedis, text: bytes, more: bytes
) -> None:
    assert evaluate(fake, STRINGS, text, more) == evaluate(any_server, STRINGS, text, more)


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
