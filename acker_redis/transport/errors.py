"""What redis-py raises, as an AckerError."""

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

_PASSING = (
    "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS",
)  # fmt: skip
"""Error codes of states that pass: start-up, failover, a slot that moves, a long script."""

_PASSES = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    # Also that redis-py's cluster client gave up following a slot that moves.
    redis.exceptions.ClusterError,
    redis.exceptions.RedisClusterException,
    AttributeError,
)
"""What redis-py raises for such a state."""

_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )", re.DOTALL)
"""What Redis 6.2 puts before an error that a command in a script has met."""
_PLACE = re.compile(r"[\w/]+\.lua:[0-9]+")
_NO_RIGHT = re.compile(
    # In Redis 6.2 with the code, in 7.0 without: "ERR The user executing the script can't .."
    r"NOPERM|The user executing the script can't "
    # From Redis 7.2 and Valkey 7.2 on: "ERR ACL failure in script: User v has no permissions .."
    r"|ACL failure in script: "
)
"""By which a command inside a script fails for want of a right; the code is ERR in most versions.
Outside of scripts the code is NOPERM, of which redis-py makes NoPermissionError."""
_DEMOTED = ("READONLY", "MASTERDOWN", "NOREPLICAS")
"""Codes of a server that is no master any longer, or that has lost its replicas."""
_CODE = re.compile(
    # What redis-py puts before an error of a pipeline, in brackets or not.
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
"""Errors from whose words redis-py has taken the code."""
FAILED = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, AttributeError)
"""What redis-py raises when a command fails. AttributeError is its bug #4015: ASK named a master
that has no slots yet, and the cluster client knows none such. It passes once the slot has moved."""


def code_of(error: BaseException) -> str:
    """Return the code of a server's error reply, such as ``READONLY``; "" if there is none.

    ``error`` is one of redis-py, or an AckerError that it caused. Codes are the same in all
    versions; words are not. A missing right is NOPERM, also inside a script, where its code is ERR.
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
    """Whether Redis refused for want of a right; an error of redis-py, or an AckerError of it."""
    return code_of(error) == "NOPERM"


def is_demoted(error: Exception) -> bool:
    """Whether the server refused as a demoted master does; nothing has run, so send it again.

    The address may lead to another server by now, and only a new connection finds out.
    UNBLOCKED is not here: it answers blocking commands only, and no client sends one.
    """
    return code_of(error) in _DEMOTED


def tls_options(client: Any) -> Mapping[str, Any]:
    """Return the options of a client of redis-py, those of TLS among them."""
    holder = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
    return getattr(holder, "connection_kwargs", None) or {}


def tls_trouble(error: BaseException, options: Mapping[str, Any]) -> str:
    """Return what is wrong with a file or a certificate of TLS, with the path; "" if nothing is.

    redis-py says only that a file is missing, and not which.
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
            against = authority or "those of this system; name yours as ssl_ca_certs=PATH"
            why = str(cause.verify_message).rstrip(".")
            return f"the server's certificate is not trusted: {why}; checked against {against}"
        cause = cause.__cause__ or cause.__context__
    if authority:
        try:
            ssl.create_default_context(cafile=authority)
        except ssl.SSLError:
            return f"{authority} (ssl_ca_certs) holds no certificate as PEM"
    return ""


def translate(
    error: Exception,
    options: Mapping[str, Any] = MappingProxyType({}),
    script: Script | None = None,
) -> AckerError:
    """AckerError for an error of redis-py. No message holds a password.

    ``options`` are those of the client, by which an error of TLS names its file. An error inside
    ``script`` names the file and the line.
    """
    away = redis.exceptions.ConnectionError | redis.exceptions.RedisClusterException
    if isinstance(error, away) and (trouble := tls_trouble(error, options)):
        return RedisUnavailableError(f"Redis cannot be reached by TLS: {trouble}")
    code, known = code_of(error), parse_error(_IN_SCRIPT.sub("", str(error)))
    if known:
        return known
    said = script.locate(str(error)) if script else str(error)
    words = _IN_SCRIPT.sub("", said)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return RedisRefusedError(f"Redis refused the user or password: {words}")
    if code == "OOM":
        return RedisRefusedError(
            "Redis is at maxmemory and refused the call; nothing was changed. "
            "Raise maxmemory, lower high_water, or let the sources take their outcomes"
        )
    if isinstance(error, _PASSES) or code in _PASSING:
        return RedisUnavailableError(
            f"Redis did not answer: {words.rstrip('.')}; is it running and reachable?"
        )
    if is_denied(error):
        return RedisRefusedError(
            f"this user may not do that: {words}; acker-redis acl ROLE NAMESPACE prints a line "
            "that grants what a role needs"
        )
    if words.startswith("Function not found"):
        return RedisRefusedError(
            "Redis lacks the functions of this version; run acker-redis functions load as a user "
            "who may FUNCTION LOAD"
        )
    place = _PLACE.search(said)
    # What Redis 6.2 puts before an error holds the place.
    where = f", at {place[0]}" if place and place[0] not in words else ""
    return RedisRefusedError(f"Redis refused the call: {words}{where}")
