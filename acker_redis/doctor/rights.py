"""Try which commands this user may run on the keys of a namespace, without changing anything.

Each command is sent with arguments by which it does nothing: a key that never exists, or a value
that the command refuses. Redis checks the rights before the arguments. Some commands have an effect
with any arguments. For these a script asks Redis 7.0 about the rights, and needs only EVAL.
"""

import json
from collections.abc import Callable, Collection
from typing import Any

from redis.exceptions import ResponseError

from acker_redis.doctor.facts import Missing, RightsFacts
from acker_redis.doctor.reading import ask, server_of
from acker_redis.ops import acl
from acker_redis.protocol.keys import NAMESPACES, ShardKeys, channel
from acker_redis.sync.connection import Connection
from acker_redis.transport.errors import FAILED, is_denied, translate

Args = tuple[str | int, ...]

_CHECK = """
local refused = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  refused[i] = 1
  for _, args in ipairs(command) do
    local known, may = pcall(redis.acl_check_cmd, unpack(args))
    if may or not known then refused[i] = 0 end
  end
end
return refused
"""


def _probes(keys: ShardKeys) -> dict[str, Args]:
    """Return arguments by which each command does nothing; the shard's prefix is never a key."""
    key, wrong = keys.prefix, "acker-doctor"
    nothing: dict[str, Args] = {
        "BITCOUNT": (key,),
        "BITOP": (wrong, key, key),
        "BITPOS": (key, 1),
        "EVAL": ("return 0", 2, *keys.both),
        "EVALSHA": ("0" * 40, 2, *keys.both),
        "HDEL": (key, wrong),
        "HGET": (key, wrong),
        "HINCRBY": (key, wrong, wrong),
        "HMGET": (key, wrong),
        "HSCAN": (key, 0),
        "HSET": (key, wrong, "", wrong),
        "RENAME": (key, key),
        "SET": (key, "", wrong),
        "SETRANGE": (key, -1, ""),
        "SISMEMBER": (NAMESPACES, wrong),
        "SMEMBERS": (NAMESPACES,),
        "SREM": (NAMESPACES, f" {wrong}"),
        "TIME": (),
        "XADD": (key, wrong, wrong, ""),
        "XDEL": (key, "0-0"),
        "XRANGE": (key, "-", "+", "COUNT", 1),
        "XREVRANGE": (key, "+", "-", "COUNT", 1),
        "XINFO|STREAM": (key,),
        "INFO": ("server",),
        "ROLE": (),
        "DBSIZE": (),
        "CONFIG|GET": ("save",),
        "SLOWLOG|GET": (1,),
        "SLOWLOG|LEN": (),
        "LATENCY|LATEST": (),
        "LATENCY|HISTORY": (wrong,),
        "LATENCY|DOCTOR": (),
        "LATENCY|GRAPH": (wrong,),
        "LATENCY|HISTOGRAM": (wrong,),
        "CLIENT|LIST": (),
        "CLUSTER|INFO": (),
        "CLUSTER|KEYSLOT": (key,),
        "CLUSTER|COUNTKEYSINSLOT": (0,),
        "CLUSTER|REPLICAS": (wrong,),
        "ACL|WHOAMI": (),
        "ACL|CAT": (),
        "ACL|DRYRUN": (wrong, "PING"),
    }
    for name in ("EXISTS", "GET", "HGETALL", "HKEYS", "HLEN", "STRLEN", "TYPE", "UNLINK", "XLEN"):
        nothing[name] = (key,)
    return nothing


def _asked_only(keys: ShardKeys) -> dict[str, list[Args]]:
    """Return arguments of the commands with an effect: publish, add, or subscribe.

    A command is allowed if one of its argument lists is allowed: a pattern must be exactly the one
    in the user's rule.
    """
    live = channel(keys.namespace, "ack", "doctor")
    patterns: list[Args] = [(acl.channels(keys.namespace),), (acl.channels(None),)]
    return {
        "PUBLISH": [(live, "")],
        "SADD": [(NAMESPACES, keys.namespace)],
        "SUBSCRIBE": [(live,)],
        "PSUBSCRIBE": patterns,
        "UNSUBSCRIBE": [(live,)],
        "PUNSUBSCRIBE": patterns,
    }


def try_commands(connection: Connection, namespace: str, commands: Collection[str]) -> RightsFacts:
    """Try commands, given as ``XADD`` or ``CONFIG|GET``; leave out those that cannot be tried.

    The namespace need not exist. Raise RedisUnavailableError if Redis does not answer.
    """
    keys = ShardKeys(namespace, 0)
    # A cluster client would search for keys in commands that have none.
    server = server_of(connection.client, keys)
    run: Callable[..., Any] = server.execute_command
    probes = {name: args for name, args in _probes(keys).items() if name in commands}
    tried, refused = set(probes), {}
    for name, reply in zip(probes, _send(server, probes), strict=True):
        if isinstance(reply, ResponseError) and is_denied(reply):
            words = str(reply)
            refused[name] = "keys" if " key" in words else "command"
    asked = {name: args for name, args in _asked_only(keys).items() if name in commands}
    answers = _ask_inside(run, keys, asked)
    for name, may_not in answers.items():
        tried.add(name)
        if may_not:
            refused[name] = "command"
    user = ask("ACL WHOAMI", lambda: run("ACL WHOAMI"))
    who = "" if isinstance(user, Missing) else _text(user)
    return RightsFacts(who, namespace, frozenset(tried), refused, connection.functions)


def _send(server: Any, commands: dict[str, Args]) -> list[Any]:
    """Send all commands in one pipeline; return their replies, which may be errors."""
    pipe = server.pipeline(transaction=False)
    for name, args in commands.items():
        pipe.execute_command(*name.split("|"), *args)
    try:
        replies: list[Any] = pipe.execute(raise_on_error=False)
    except FAILED as error:
        raise translate(error) from error
    return replies


def _ask_inside(
    run: Callable[..., Any], keys: ShardKeys, commands: dict[str, list[Args]]
) -> dict[str, bool]:
    """Return for each command whether it is refused; {} before 7.0, or without EVAL."""
    if not commands:
        return {}
    listed = json.dumps([[[name, *args] for args in each] for name, each in commands.items()])
    try:
        known = run("EVAL", "return redis.acl_check_cmd and 1 or 0", 2, *keys.both)
        answers = run("EVAL", _CHECK, 2, *keys.both, listed) if known else []
    except ResponseError:
        return {}
    except FAILED as error:
        raise translate(error) from error
    return dict(zip(commands, map(bool, answers), strict=False))


def _text(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
