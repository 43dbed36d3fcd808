"""The fake server, held against a real one and against Python's arithmetic."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

import acker_redis
from acker_redis import embedded
from acker_redis.embedded import EmbeddedRedis, ServerBinary, find_server
from acker_redis.server_binary import find_fake

LIMIT = 60.0  # seconds until a condition that should come true is given up
ROOT = Path(acker_redis.__file__).parent.parent
EVERY_BYTE = bytes(range(256))


def needed(found: ServerBinary | None, what: str) -> ServerBinary:
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is not installed")
    return found


@pytest.fixture(scope="module")
def real() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(binary=needed(find_server(), "redis-server")) as server:
        yield server


@pytest.fixture(scope="module")
def fake() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(binary=needed(find_fake(), "fakeredis with Lua")) as server:
        yield server


@pytest.fixture(scope="module", params=["real", "fake"])
def either(request: pytest.FixtureRequest) -> EmbeddedRedis:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, EmbeddedRedis)
    return server


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(either: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[Any]:
    with redis.Redis.from_url(either.url, protocol=request.param) as connected:
        connected.flushall()
        yield connected


def test_fake_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    needed(find_fake(), "fakeredis with Lua")
    monkeypatch.setattr(embedded, "find_server", lambda: None)
    with EmbeddedRedis(allow_fake=True) as server:
        directory = server.directory
        assert server.description == "fakeredis (a Python imitation, slow)"
        assert server.pid is None
        assert server.alive
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value")
            assert client.get("key") == b"value"
            assert client.config_get("hash-max-listpack-entries") == {
                "hash-max-listpack-entries": "64"
            }
    assert not directory.exists()


def test_fake_stands_alone(tmp_path: Path) -> None:
    needed(find_fake(), "fakeredis with Lua")
    with subprocess.Popen(
        [sys.executable, "-m", "acker_redis.fake_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as server:
        assert server.stdout
        port = int(server.stdout.readline().rpartition(":")[2])
        with redis.Redis(port=port) as client:
            assert client.eval("return struct.pack('>H', bit.bxor(1, 2))", 0) == b"\0\3"
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0


def test_every_byte_goes_through_a_script(client: Any) -> None:
    body = """
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        return {KEYS[1], ARGV[1], redis.call('HGET', KEYS[1], ARGV[1]), #ARGV[1],
                redis.call('HMGET', KEYS[1], 'none', ARGV[1])}
    """
    key, value = b"key" + EVERY_BYTE, EVERY_BYTE[::-1]
    reply = client.eval(body, 1, key, EVERY_BYTE, value)
    assert reply == [key, EVERY_BYTE, value, 256, [None, value]]
    assert client.hgetall(key) == {EVERY_BYTE: value}
    assert client.keys() == [key]


def test_commands_in_a_script(client: Any) -> None:
    body = """
        local call, key, stream = redis.call, KEYS[1], KEYS[2]
        local out = {}
        local function note(value) out[#out + 1] = value end
        note(call('HSET', key, 'a', '1', 'b', '2', 'c', '3'))
        note(call('HLEN', key))
        note(call('HMGET', key, 'c', 'x', 'a'))
        note(call('HINCRBY', key, 'a', 41))
        note(call('HDEL', key, 'b', 'x'))
        local page = call('HSCAN', key, '0', 'COUNT', 10)
        note(page[1])
        local fields = {}
        for i = 1, #page[2], 2 do fields[#fields + 1] = page[2][i] .. '=' .. page[2][i + 1] end
        table.sort(fields)
        note(fields)
        note(call('RENAME', key, 'other'))
        note(call('EXISTS', key))
        note(call('HLEN', key))
        note(call('HGET', 'other', 'x'))
        note(call('UNLINK', 'other'))
        local first = call('XADD', stream, '*', 'rows', ARGV[1])
        local second = call('XADD', stream, '*', 'rows', 'two')
        note(call('XLEN', stream))
        local entries = call('XRANGE', stream, '-', '+', 'COUNT', 1)
        note(entries[1][1] == first)
        note(entries[1][2])
        note(call('XDEL', stream, first, second))
        note(call('PUBLISH', 'nobody', 'hears'))
        local time = call('TIME')
        note(tonumber(time[1]) > 1e9 and tonumber(time[2]) < 1e6)
        note(call('SET', 'plain', 'text'))
        note(redis.status_reply('FINE'))
        note(call('EXPIRE', 'plain', 100))
        note(redis.pcall('HGET', 'plain', 'field').err)
        return out
    """
    reply: Any = client.eval(body, 2, "hash", "stream", EVERY_BYTE)
    assert reply.pop().startswith(b"WRONGTYPE Operation against a key")
    assert reply == [
        *(3, 3, [b"3", None, b"1"], 42, 1, b"0", [b"a=42", b"c=3"], b"OK", 0, 0, None, 1),
        *(2, 1, [b"rows", EVERY_BYTE], 2, 0, 1, b"OK", b"FINE", 1),
    ]


def test_scripts_by_their_hash(client: Any) -> None:
    script = client.register_script("return {ARGV[1], 1, false, 'x'}")
    client.script_flush()
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha(script.sha, 0, "a")
    assert script(args=[EVERY_BYTE]) == [EVERY_BYTE, 1, None, b"x"]
    assert client.evalsha(script.sha, 0, "a") == [b"a", 1, None, b"x"]
    assert client.script_exists(script.sha, "0" * 40) == [True, False]


def raw(server: EmbeddedRedis, *words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)]
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"".join(parts))
        return connection.recv(65536)


def test_replies_on_the_wire(either: EmbeddedRedis) -> None:
    def run(body: bytes) -> bytes:
        return raw(either, b"EVAL", body, b"0")

    assert run(b"return redis.error_reply('ACKER ARGS text')") == b"-ACKER ARGS text\r\n"
    assert run(b"return redis.status_reply('FINE')") == b"+FINE\r\n"
    assert run(b"return 'FINE'") == b"$4\r\nFINE\r\n"
    assert run(b"return {1, false, '', 2.9}") == b"*4\r\n:1\r\n$-1\r\n$0\r\n\r\n:2\r\n"
    assert run(b"return nil") == b"$-1\r\n"
    assert raw(either, b"PING") == b"+PONG\r\n"


def test_a_connection_outlives_an_error(client: Any) -> None:
    number = client.client_id()
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match=r"^ACKER ARGS text$"):
            client.eval("return redis.error_reply('ACKER ARGS text')", 0)
        with pytest.raises(redis.ResponseError):
            client.eval("return nonsense(", 0)
        with pytest.raises(redis.ResponseError, match="number of args"):
            client.eval("return redis.call('HGET', 'a')", 0)
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
        "return struct.pack('c5', 'abc')",
        "return struct.pack('?', 1)",
        "return bit.bxor('x', 1)",
    ],
)
def test_scripts_that_redis_refuses(client: Any, body: str) -> None:
    with pytest.raises(redis.ResponseError):
        client.eval(body, 0)
    assert client.eval("return 1", 0) == 1


def test_published_in_a_script(client: Any) -> None:
    with client.pubsub() as listener:
        listener.subscribe("news")
        message: Any = listener.get_message(timeout=LIMIT)
        assert message["type"] == "subscribe"
        assert client.eval("return redis.call('PUBLISH', 'news', ARGV[1])", 0, EVERY_BYTE) == 1
        message = listener.get_message(timeout=LIMIT)
        assert message["type"] == "message"
        assert message["data"] == EVERY_BYTE
        listener.unsubscribe()


def test_a_blocked_reader_is_woken_by_a_script(client: Any) -> None:
    got: list[Any] = []

    def read() -> None:
        got.append(client.xread({"stream": "0"}, block=int(LIMIT * 1000)))

    with client.client() as other:
        other.ping()
        reader = threading.Thread(target=read)
        reader.start()
        deadline = time.monotonic() + LIMIT
        while reader.is_alive() and time.monotonic() < deadline:
            # Sent again and again, because nothing tells that the reader has begun to wait.
            other.eval("redis.call('XADD', KEYS[1], '*', 'a', ARGV[1])", 1, "stream", EVERY_BYTE)
            reader.join(0.1)
    assert got
    # A list in RESP2, a dict in RESP3.
    assert repr(EVERY_BYTE) in repr(got)


def test_pipelines_and_transactions(client: Any) -> None:
    for transaction in (False, True):
        with client.pipeline(transaction=transaction) as pipeline:
            pipeline.set("n", 1).incr("n").eval("return {redis.call('GET', KEYS[1])}", 1, "n")
            assert pipeline.execute() == [True, 2, [b"2"]]


def test_asyncio_clients(either: EmbeddedRedis) -> None:
    async def talk() -> list[Any]:
        async with redis.asyncio.Redis.from_url(either.url) as client:
            calls = [client.eval("return ARGV[1]", 0, str(n)) for n in range(20)]
            return await asyncio.gather(*calls)

    assert asyncio.run(talk()) == [str(n).encode() for n in range(20)]


# bit and struct: the fake's against Python's arithmetic, and against the real server's.

whole = st.integers(-(2**51), 2**51)
exact = st.integers(-(2**53), 2**53)


def signed(value: int, bits: int = 32) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def evaluate(server: EmbeddedRedis, body: str, *args: object) -> Any:
    with redis.Redis.from_url(server.url) as client:
        return client.eval(body, 0, *args)


BITS = """
local a, b, by = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
return {bit.bxor(a, b), bit.band(a, b), bit.bor(a, b), bit.bnot(a), bit.tobit(a),
        bit.lshift(a, by), bit.rshift(a, by), bit.tohex(a), bit.tohex(a, 4), bit.tohex(a, -3),
        bit.bxor(a, b, a), bit.bxor(ARGV[1], ARGV[2]), bit.bor(b), bit.bxor(a / 4, b / 2)}
"""


@settings(deadline=None)
@given(a=whole, b=whole, by=st.integers(-64, 64))
def test_bit(either: EmbeddedRedis, a: int, b: int, by: int) -> None:
    shift = by % 32
    reply = evaluate(either, BITS, a, b, by)
    assert reply[:13] == [
        signed(a ^ b),
        signed(a & b),
        signed(a | b),
        signed(~a),
        signed(a),
        signed(a << shift),
        signed(a % 2**32 >> shift),
        b"%08x" % (a % 2**32),
        b"%04x" % (a % 2**16),
        b"%03X" % (a % 2**12),
        signed(b),
        signed(a ^ b),
        signed(b),
    ]
    assert reply[13] == signed(round(a / 4) ^ round(b / 2))


INTEGERS = """
local out = {}
local n = tonumber(ARGV[1])
for i = 2, #ARGV do
  local data = struct.pack(ARGV[i], n)
  local back, next_at = struct.unpack(ARGV[i], 'xy' .. data .. 'z', 3)
  out[#out + 1] = {data, string.format('%.0f', back), next_at}
end
return out
"""
SIZES = {"b": 1, "h": 2, "i": 4, "l": 8, **{f"i{n}": n for n in range(1, 9)}}


@settings(deadline=None)
@given(number=exact)
def test_struct_integers(either: EmbeddedRedis, number: int) -> None:
    formats = [
        (order + letter[0].upper() + letter[1:] if upper else order + letter, size, order, upper)
        for letter, size in SIZES.items()
        for order in (">", "<", "")
        for upper in (False, True)
    ]
    reply = evaluate(either, INTEGERS, number, *(form for form, *_ in formats))
    for (form, size, order, unsigned), (data, back, next_at) in zip(formats, reply, strict=True):
        low = number % (1 << 8 * size)
        kept = low if unsigned else signed(low, 8 * size)
        assert data == low.to_bytes(size, "big" if order == ">" else "little"), form
        assert int(back) == int(float(kept)), form
        assert next_at == 3 + size


STRINGS = """
local data = struct.pack('>I2c0Bc' .. #ARGV[1] + 1 .. ' <I3 c0', #ARGV[1], ARGV[1], 7,
  ARGV[1] .. '+', 258, ARGV[2])
local a, b, c, d, at = struct.unpack('>I2c0Bc' .. #ARGV[1] + 1 .. '<I3', data)
local rest, e = struct.unpack('c' .. #ARGV[2] + 0, data .. '!', at), nil
return {data, a, b, c, d, at, struct.unpack('>I2', data), rest}
"""


@settings(deadline=None)
@given(text=st.binary(max_size=300), more=st.binary(min_size=1, max_size=20))
def test_struct_strings(either: EmbeddedRedis, text: bytes, more: bytes) -> None:
    data, *values = evaluate(either, STRINGS, text, more)
    size = len(text)
    assert data == size.to_bytes(2, "big") + text + b"\7" + text + b"+" + b"\2\1\0" + more
    # unpack() in the middle of a list gives its first value only.
    assert values == [text, 7, text + b"+", 258, 2 * size + 8, size, more]


FORMATS = st.lists(
    st.sampled_from([">", "<", " ", *"bBhHiIlL", *(f"{c}{n}" for c in "iI" for n in range(1, 9))]),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(form=FORMATS, numbers=st.lists(exact, min_size=12, max_size=12), more=st.binary(max_size=3))
def test_fake_packs_as_the_real_server(
    real: EmbeddedRedis, fake: EmbeddedRedis, form: list[str], numbers: list[int], more: bytes
) -> None:
    body = """
    local data = struct.pack(ARGV[1], unpack(ARGV, 3))
    local values = {struct.unpack(ARGV[1], data .. ARGV[2])}
    for i = 1, #values do values[i] = string.format('%.17g', values[i]) end
    return {data, values}
    """
    text = "".join(form)
    assert evaluate(fake, body, text, more, *numbers) == evaluate(real, body, text, more, *numbers)


@settings(deadline=None)
@given(data=st.binary(min_size=8, max_size=8), big=st.booleans(), upper=st.booleans())
def test_fake_rounds_as_the_real_server(
    real: EmbeddedRedis, fake: EmbeddedRedis, data: bytes, big: bool, upper: bool
) -> None:
    body = "return string.format('%.17g', (struct.unpack(ARGV[1], ARGV[2])))"
    form = (">" if big else "<") + ("I8" if upper else "i8")
    assert evaluate(fake, body, form, data) == evaluate(real, body, form, data)


LUAS = ["lua51", "lua52", "lua53", "lua54", "lua55", "luajit20", "luajit21"]


@pytest.mark.parametrize("lua", LUAS)
def test_modules_run_on_any_lua(lua: str) -> None:
    module = pytest.importorskip(f"lupa.{lua}")
    runtime = module.LuaRuntime(encoding=None)
    folder = ROOT / "acker_redis" / "fake_lua"
    names = runtime.globals()
    for name in ("bit", "struct"):
        names[name.encode()] = runtime.execute((folder / f"{name}.lua").read_bytes())
    names[b"tonumber"] = runtime.eval("tonumber")
    run = runtime.eval("function(body, ...) ARGV = {...}; return (loadstring or load)(body)() end")

    def unfold(table: Any) -> list[Any]:
        return [unfold(v) if module.lua_type(v) == "table" else v for v in table.values()]

    bits = unfold(run(BITS.encode(), b"-5", b"4294967295", b"33"))
    assert bits[:10] == [4, -5, -1, 4, -5, -10, 0x7FFFFFFD, b"fffffffb", b"fffb", b"FFB"]
    for number in (0, -1, 255, 2**53, -(2**53), 123456789012):
        for data, back, next_at in unfold(run(INTEGERS.encode(), b"%d" % number, b">i8", b"<I8")):
            assert {data, data[::-1]} >= {number.to_bytes(8, "big", signed=True)}
            assert int(back) in (number, number + 2**64, int(float(number + 2**64)))
            assert next_at == 11
    assert unfold(run(STRINGS.encode(), b"abc", b"!")) == [
        *(b"\0\3abc\7abc+\2\1\0!", b"abc", 7, b"abc+", 258, 14, 3, b"!")
    ]
