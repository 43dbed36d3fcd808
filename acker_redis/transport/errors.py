"""Translation of redis-py's errors to AckerError."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import redis

from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.commands import parse_error
from acker_redis.protocol.scripts import Script
from acker_redis.transport.words import plain_words

_PASSING = (
    "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS",
    "UNBLOCKED",
)  # fmt: skip
"""Error codes of transient states: start-up, failover, a migrating slot, a long script."""

_PASSES = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    # Includes the case that redis-py's cluster client gave up following a migrating slot.
    redis.exceptions.ClusterError,
    redis.exceptions.RedisClusterException,
    AttributeError,
)
"""Errors that redis-py raises in a transient state."""

_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )", re.DOTALL)
"""Prefix of Redis 6.2 before the error of a command inside a script."""
_PLACE = re.compile(r"[\w/]+\.lua:[0-9]+")
_NO_RIGHT = re.compile(
    # In Redis 6.2 with the code, in 7.0 without: "ERR The user executing the script can't .."
    r"NOPERM|The user executing the script can't "
    # From Redis 7.2 and Valkey 7.2 on: "ERR ACL failure in script: User v has no permissions .."
    r"|ACL failure in script: "
)
"""Errors of a command inside a script that lacks a right; in most versions their code is ERR.
Outside of scripts the code is NOPERM, for which redis-py raises NoPermissionError."""
_DEMOTED = ("READONLY", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED")
"""Codes of a server that is no longer a master, or that has lost its replicas. UNBLOCKED replies to
a command that waited for entries when that happened."""
_CODE = re.compile(
    # redis-py's prefix of an error in a pipeline, with or without brackets.
    r"(?:Command # [0-9]+ \(.*\) of pipeline caused error: (?:\(['\"])?)?([A-Z]+)(?: |$)",
    re.DOTALL,
)
_CODE_OF = {
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.exceptions.OutOfMemoryError: "OOM",
    redis.exceptions.ReadOnlyError: "READONLY",
}
"""Errors whose code redis-py has removed from the message."""
FAILED = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, AttributeError)
"""Errors that redis-py raises when a command fails. AttributeError is its bug #4015: ASK named a
master without slots, which the cluster client does not know. It is transient: it ends when the slot
has migrated."""


def code_of(error: BaseException) -> str:
    """Return the code of a server's error reply, such as ``READONLY``; "" if there is none.

    ``error`` is an error of redis-py, or an AckerError that it caused. Codes are the same in all
    versions of Redis, messages are not. For a missing right the code is NOPERM, also inside a
    script, where Redis replies ERR.
    """
    said = error.__cause__ if isinstance(error, AckerError) else error
    for kind, code in _CODE_OF.items():
        if isinstance(said, kind):
            return code
    if _NO_RIGHT.search(str(said)):
        return "NOPERM"
    found = _CODE.match(_IN_SCRIPT.sub("", str(said)))
    return found[1] if found and isinstance(said, redis.exceptions.ResponseError) else ""


def is_denied(error: Exception) -> bool:
    """Return whether Redis refused a command because the user lacks a right.

    ``error`` is an error of redis-py, or an AckerError that it caused.
    """
    return code_of(error) == "NOPERM"


def is_transient(error: Exception) -> bool:
    """Return whether redis-py's error may be gone at the next attempt; the command may have run."""
    return isinstance(error, _PASSES) or code_of(error) in _PASSING


def is_demoted(error: Exception) -> bool:
    """Return whether a demoted master refused the command; it did not run, so a retry is safe.

    The address may lead to another server by now, and only a new connection detects that.
    """
    return code_of(error) in _DEMOTED


def tls_options(client: Any) -> Mapping[str, Any]:
    """Return the connection options of a redis-py client, including those of TLS."""
    holder = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
    return getattr(holder, "connection_kwargs", None) or {}


def tls_trouble(error: BaseException, options: Mapping[str, Any]) -> str:
    """Return the cause of a TLS error, with the path of the file; "" if the files are valid.

    redis-py reports that a file is missing, but not which one.
    """
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if path := options.get(name):
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as refused:
                return f"cannot read {path} ({name}): {refused.strerror}"
    authority = options.get("ssl_ca_certs")
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            against = authority or "those of this system; set your own by ssl_ca_certs=PATH"
            why = str(cause.verify_message).rstrip(".")
            return f"the server's certificate is not trusted: {why}; checked against {against}"
        cause = cause.__cause__ or cause.__context__
    if authority:
        try:
            ssl.create_default_context(cafile=authority)
        except ssl.SSLError:
            return f"{authority} (ssl_ca_certs) contains no PEM certificate"
    return ""


def translate(
    error: Exception,
    options: Mapping[str, Any] = MappingProxyType({}),
    script: Script | None = None,
) -> AckerError:
    """Return the AckerError for an error of redis-py; its message never contains a password.

    ``options`` are the client's options, so that a TLS error can name the file. An error inside
    ``script`` names the file and the line.
    """
    away = redis.exceptions.ConnectionError | redis.exceptions.RedisClusterException
    if isinstance(error, away) and (trouble := tls_trouble(error, options)):
        return RedisUnavailableError(f"Redis cannot be reached by TLS: {trouble}")
    code, known = code_of(error), parse_error(_IN_SCRIPT.sub("", str(error)))
    if known:
        return known
    said = script.locate(str(error)) if script else str(error)
    words = plain_words(_IN_SCRIPT.sub("", said))
    if isinstance(error, redis.exceptions.AuthenticationError):
        return RedisRefusedError(f"Redis refused the user or password: {words}")
    if code == "OOM":
        return RedisRefusedError(
            "Redis is at maxmemory and refused the call; nothing was changed. "
            "Raise maxmemory, lower high_water, or let the sources take their outcomes"
        )
    if is_transient(error):
        return RedisUnavailableError(
            f"Redis did not answer: {words.rstrip('.')}; is it running and reachable?"
        )
    if is_denied(error):
        return RedisRefusedError(
            f"this user may not do that: {words}; acker-redis acl ROLE NAMESPACE prints a line "
            "that grants the rights of a role"
        )
    if words.startswith("Function not found"):
        return RedisRefusedError(
            "Redis lacks the functions of this version; run acker-redis functions load as a user "
            "with the right to FUNCTION LOAD"
        )
    place = _PLACE.search(said)
    # The prefix of Redis 6.2 contains the place.
    where = f", at {place[0]}" if place and place[0] not in words else ""
    return RedisRefusedError(f"Redis refused the call: {words}{where}")
