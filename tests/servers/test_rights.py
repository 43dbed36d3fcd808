"""A missing right inside a script: each server has another error text, with the code ERR."""

from collections.abc import Iterator

import pytest
import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisRefusedError
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.transport.errors import code_of, is_denied, translate
from tests.open_redis import OpenRedis

USER = "narrow"


@pytest.fixture
def narrow(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A user who may run scripts on the keys of ackers, but not HINCRBY, and may not publish."""
    with redis.Redis(port=server.port) as admin:
        admin.flushall()
        rule = f"{USER} reset on >secret ~acker:* resetchannels +@all -hincrby"
        admin.execute_command("ACL", "SETUSER", *rule.split())
        with redis.Redis(port=server.port, username=USER, password="secret") as client:
            yield client
        admin.acl_deluser(USER)
        admin.flushall()


@pytest.mark.parametrize(
    "body",
    [
        "return redis.call('HINCRBY', KEYS[1], 'field', 1)",
        "return redis.call('GET', 'not-an-ackers')",
        "return redis.call('PUBLISH', 'channel', 'message')",
        "return redis.error_reply(redis.pcall('HINCRBY', KEYS[1], 'field', 1).err)",
    ],
    ids=["command", "key", "channel", "caught"],
)
def test_a_missing_right_inside_a_script_is_recognised(narrow: redis.Redis, body: str) -> None:
    with pytest.raises(redis.ResponseError) as raised:
        narrow.eval(body, 1, "acker:{n:0}:meta")
    assert is_denied(raised.value)
    assert "this user may not do that" in str(translate(raised.value))


def test_a_missing_right_is_reported_with_the_command_that_grants_it(
    server: EmbeddedRedis, narrow: redis.Redis
) -> None:
    with Acker.from_url(server.url, "n") as acker:
        acker.create(AckerConfig())
    with Acker(narrow, "n") as refused, pytest.raises(RedisRefusedError) as raised:
        refused.track_block("task", "label", [5])
    assert "this user may not do that" in str(raised.value)
    assert "acker-redis acl" in str(raised.value)
    assert is_denied(raised.value)


@pytest.mark.parametrize(
    "body",
    [
        "return redis.call('HGET', KEYS[1])",
        "return redis.call('NOSUCH')",
        "return redis.error_reply('ACKER ARGS a user who can\\'t run this command')",
    ],
)
def test_other_errors_inside_a_script_are_not_denials(narrow: redis.Redis, body: str) -> None:
    with pytest.raises(redis.ResponseError) as raised:
        narrow.eval(body, 1, "acker:{n:0}:meta")
    assert not is_denied(raised.value)


@pytest.fixture
def alone(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A separate server of the same kind."""
    with OpenRedis(server._binary) as own, redis.Redis(port=own.port) as client:
        yield client


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("READONLY", ("REPLICAOF", "127.0.0.1", "1")),
        ("NOREPLICAS", ("CONFIG", "SET", "min-replicas-to-write", "1")),
        ("OOM", ("CONFIG", "SET", "maxmemory", "1")),
        ("WRONGTYPE", ("LPUSH", "acker:{n:0}:meta", "no hash")),
    ],
)
def test_the_code_of_an_error_inside_a_script_is_known(
    alone: redis.Redis, code: str, trouble: tuple[str, ...]
) -> None:
    """Each server has another text, and 6.2 has the code in the middle of it."""
    alone.execute_command(*trouble)
    with pytest.raises(redis.ResponseError) as raised:
        alone.eval("return redis.call('HINCRBY', KEYS[1], 'field', 1)", 1, "acker:{n:0}:meta")
    assert code_of(raised.value) == code
    said = translate(raised.value)
    said.__cause__ = raised.value
    assert code_of(said) == code


def test_the_code_of_an_error_in_a_pipeline_is_known(alone: redis.Redis) -> None:
    alone.lpush("acker:{n:0}:meta", "no hash")
    pipe = alone.pipeline(transaction=False).ping().hgetall("acker:{n:0}:meta")
    with pytest.raises(redis.ResponseError) as raised:
        pipe.execute()
    assert code_of(raised.value) == "WRONGTYPE"


def test_exception_without_an_error_reply_has_no_code() -> None:
    assert code_of(redis.ConnectionError("READONLY is the name of a host")) == ""
    assert code_of(RedisRefusedError("NOPERM is no code here")) == ""
