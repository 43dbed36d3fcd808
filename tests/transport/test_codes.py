"""The error codes of servers: the table is complete, and the client keeps it."""

import re
from typing import Any

import pytest
import redis
from redis._parsers.base import BaseParser

from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.codes import CODES, FOLLOWED, PATIENT, REFUSED, RETRIED, Treatment
from acker_redis.transport.errors import code_of, is_transient, may_pass, must_leave, translate
from tests.binaries import FINDERS, find


def parsed(reply: str) -> Any:
    """Return the exception that redis-py raises for an error reply."""
    return BaseParser.parse_error(reply)


@pytest.mark.parametrize("kind", FINDERS)
def test_table_has_each_code_of_a_server(kind: str) -> None:
    """The texts of replies are in the server's program."""
    binary = find(kind)
    if binary is None:
        pytest.skip(f"there is no server {kind}")
    strings = binary.path.read_bytes().split(b"\0")
    found = {m[1].decode() for text in strings if (m := re.match(rb"-([A-Z]{3,}) ", text))}
    assert found - CODES.keys() == set()
    assert {"MISCONF", "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "READONLY"} <= found


@pytest.mark.parametrize(
    "prefix", ["", "ERR Error running script (call to f_1): @user_script:9: -"]
)
@pytest.mark.parametrize("code", CODES)
def test_each_code_is_treated_as_the_table_says(code: str, prefix: str) -> None:
    """Also with the prefix of Redis 6.2 inside a script."""
    words = {"NOAUTH": "Authentication required.", "MOVED": "9 h:1", "ASK": "9 h:1"}.get(
        code, "some words"
    )
    said = parsed(f"{prefix}{code} {words}")
    treatment = CODES[code].treatment
    error = translate(said)
    error.__cause__ = said
    if prefix and treatment is FOLLOWED:
        return  # a command in a script is not followed
    assert code_of(said) == code_of(error) == code or treatment in (FOLLOWED, REFUSED)
    assert is_transient(said) is (treatment is RETRIED)
    assert must_leave(said) is CODES[code].leave
    assert isinstance(error, RedisUnavailableError) is (treatment is RETRIED)
    assert may_pass(said) is (treatment is PATIENT)
    assert getattr(error, "may_pass", False) is (treatment is PATIENT)
    assert words in str(error) or code == "OOM"


@pytest.mark.parametrize(
    "reply",
    [
        "ERR The user executing the script can't run this command or subcommand script: 1",
        "ERR ACL failure in script: User p has no permissions to run the 'hdel' command",
        "ERR Error running script (call to f_1): @user_script:9: -NOPERM The user executing the "
        "script can't run this command or subcommand",
    ],
)
def test_right_that_is_missing_inside_a_script_does_not_pass(reply: str) -> None:
    """Commands before it may have run."""
    error = translate(parsed(reply))
    assert isinstance(error, RedisRefusedError)
    assert (error.code, error.may_pass) == ("NOPERM", False)


def test_unknown_code_is_refused_and_too_many_clients_pass() -> None:
    assert isinstance(translate(parsed("NEWCODE some words")), RedisRefusedError)
    busy = translate(parsed("ERR max number of clients reached"))
    assert isinstance(busy, RedisUnavailableError)
    assert str(busy).startswith("Redis cannot run the call now: max number of clients")


def test_errors_name_the_state_of_the_server() -> None:
    error: AckerError = translate(redis.ResponseError("NOREPLICAS Not enough good replicas."))
    assert str(error) == (
        "Redis cannot run the call now (fewer replicas than `min-replicas-to-write`): "
        "NOREPLICAS Not enough good replicas: start its replicas again, or lower "
        "min-replicas-to-write"
    )


def test_each_treatment_is_used() -> None:
    assert {each.treatment for each in CODES.values()} == set(Treatment)
