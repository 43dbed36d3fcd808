"""Entries with ids: the commands that add them to streams, in one round trip."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from acker_redis.errors import ConfigError
from acker_redis.integrations.core.headers import is_id
from acker_redis.sync.connection import reconnect
from acker_redis.transport.clients import check_reads_masters
from acker_redis.transport.errors import must_leave
from acker_redis.trees.message_id import HEADER, MessageId

Fields = Mapping[Any, Any]
"""The fields of an entry, as redis-py takes and returns them."""
Command = tuple[Any, ...]
Encode = Callable[[Any], bytes]

AWAY = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ClusterError)
"""Errors in place of a reply, after which a command may have had an effect, or none."""


def encoder_of(client: Any, who: str) -> Encode:
    """Return the function that encodes what a client sends.

    Raise ConfigError unless it is a blocking client of redis-py that reads from masters.
    """
    run = getattr(client, "execute_command", None)
    if not hasattr(client, "get_encoder") or inspect.iscoroutinefunction(run):
        kind = f"{type(client).__module__}.{type(client).__name__}"
        raise ConfigError(f"{who} takes a blocking client of redis-py, not {kind}")
    check_reads_masters(client)  # an entry that a replica lacks would count as deleted
    encode: Encode = client.get_encoder().encode
    return encode


@contextmanager
def following() -> Iterator[None]:
    """Raise ConnectionError instead of the AttributeError of redis-py's bug #4015.

    A cluster's client raises that while a slot moves to a master that it does not know yet.
    """
    try:
        yield
    except AttributeError as error:
        raise redis.ConnectionError(f"redis-py cannot follow a slot that moves: {error}") from error


def encoded(encode: Encode, stream: Any, fields: Fields, maxlen: int | None) -> Command:
    """Return the arguments of XADD, as bytes and without an id.

    They are encoded now, so that a later change of the caller's values has no effect, and invalid
    fields raise here.

    Raises:
        redis.DataError: The fields are empty or no mapping, or a value is of a wrong type.

    """
    if not fields or not isinstance(fields, Mapping):
        raise redis.DataError(f"the fields of an entry are a mapping, not empty, not {fields!r}")
    trim = () if maxlen is None else (b"MAXLEN", b"~", encode(maxlen))
    pairs = [(encode(name), encode(value)) for name, value in fields.items()]
    kept = [each for pair in pairs if not is_id(pair[0]) for each in pair]
    return (encode(stream), *trim, b"*", *kept)


def stamped(command: Command, ids: MessageId) -> Command:
    """Add the field ``acker-tuple`` to the arguments of XADD.

    An entry has at least one field: without any other it gets an empty id.

    >>> stamped((b"orders", b"*", b"name", b"a hat"), MessageId({7: 40}))
    (b'orders', b'*', b'name', b'a hat', b'acker-tuple', b'7:40')
    """
    return (*command, HEADER.encode(), str(ids).encode()) if ids or command[-1] == b"*" else command


@following()
def add(client: Any, commands: Sequence[Command]) -> list[Exception | None]:
    """Add entries in one round trip; return for each why Redis refuses it, or None.

    Raises:
        redis.ConnectionError: No reply: some of the entries may have been added. So do the other
            errors in ``AWAY``.

    """
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command("XADD", *command)
    replies = pipe.execute(raise_on_error=False)
    refused = [reply if isinstance(reply, Exception) else None for reply in replies]
    if any(error is not None and must_leave(error) for error in refused):
        reconnect(client)
    for error in refused:
        if isinstance(error, AWAY):
            raise error
    return refused
