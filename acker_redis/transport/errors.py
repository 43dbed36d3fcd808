"""Translation of redis-py's errors to AckerError; ``protocol/codes.py`` has the codes."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import redis

from acker_redis.errors import (
    AckerError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.protocol.codes import CODES, Treatment, treatment_of
from acker_redis.protocol.commands import parse_error
from acker_redis.protocol.scripts import Script
from acker_redis.transport.bounded import ReplyTooLargeError
from acker_redis.transport.words import no_answer, plain_words

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
_NO_RIGHT_IN_SCRIPT = re.compile(
    # In Redis 6.2 with the code, in 7.0 without: "ERR The user executing the script can't .."
    r"The user executing the script can't "
    # From Redis 7.2 and Valkey 7.2 on: "ERR ACL failure in script: User v has no permissions .."
    r"|ACL failure in script: "
)
"""Errors of a command inside a script that lacks a right; in most versions their code is ERR.
Outside of scripts the code is NOPERM, for which redis-py raises NoPermissionError."""
_CODE = re.compile(
    # redis-py's prefix of an error in a pipeline, with or without brackets.
    r"(?:Command # [0-9]+ \(.*\) of pipeline caused error: (?:\(['\"])?)?([A-Z]+)(?: |$)",
    re.DOTALL,
)
_CODE_OF = {
    redis.exceptions.MovedError: "MOVED",  # before its base, AskError
    redis.exceptions.AskError: "ASK",
    redis.exceptions.AuthenticationError: "WRONGPASS",
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.MasterDownError: "MASTERDOWN",  # before its base
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.exceptions.OutOfMemoryError: "OOM",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.TryAgainError: "TRYAGAIN",
}
"""Errors whose code redis-py has removed from the message."""
_NOAUTH = "Authentication required"
"""The words of NOAUTH, for which redis-py raises the same error as for WRONGPASS."""
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
            return "NOAUTH" if _NOAUTH in str(said) else code
    if "NOPERM" in str(said) or _NO_RIGHT_IN_SCRIPT.search(str(said)):
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
    code = code_of(error)
    if code in CODES:  # redis-py takes a wrong password for a lost connection
        return treatment_of(code) is Treatment.RETRIED
    return isinstance(error, _PASSES)


def may_pass(error: Exception) -> bool:
    """Return whether Redis refused a command for a cause that may pass; it has changed nothing.

    Inside a script a missing right is another matter: the script may have written before.
    """
    said = str(error.__cause__ if isinstance(error, AckerError) else error)
    patient = treatment_of(code_of(error)) is Treatment.PATIENT
    return patient and not _NO_RIGHT_IN_SCRIPT.search(said)


def must_leave(error: Exception) -> bool:
    """Return whether only a new connection can succeed; the command did not run.

    A demoted master replied, and the address may lead to another one by now. Or the connection
    could not authenticate.
    """
    code = CODES.get(code_of(error))
    return code is not None and code.leave


def is_redirection(error: Exception) -> bool:
    """Return whether a node of a cluster refused a command because another may serve its slot."""
    moved = redis.exceptions.MovedError | redis.exceptions.AskError
    return isinstance(error, moved | redis.exceptions.TryAgainError)


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
    if isinstance(error, ReplyTooLargeError):
        return SchemaError(str(error))
    away = redis.exceptions.ConnectionError | redis.exceptions.RedisClusterException
    if isinstance(error, away) and (trouble := tls_trouble(error, options)):
        return RedisUnavailableError(f"Redis cannot be reached by TLS: {trouble}")
    code, known = code_of(error), parse_error(_IN_SCRIPT.sub("", str(error)))
    if known:
        return known
    said = script.locate(str(error)) if script else str(error)
    words = plain_words(_IN_SCRIPT.sub("", said))
    if is_transient(error):
        if code:
            return RedisUnavailableError(
                f"Redis cannot run the call now ({CODES[code].when}): {words.rstrip('.')}"
            )
        return RedisUnavailableError(no_answer(words))
    if treatment_of(code) is Treatment.PATIENT:
        refused = RedisRefusedError(_refusal(code, words))
        refused.code, refused.may_pass = code, may_pass(error)
        return refused
    if code == "MOVED":
        return RedisRefusedError(
            f"this server is a node of a cluster, and another node has the slot (MOVED {words}): "
            "write redis+cluster:// in the URL, or use a client for clusters"
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


def _refusal(code: str, words: str) -> str:
    if code == "OOM":
        return (
            "Redis is at maxmemory and refused the call; nothing was changed. "
            "Raise maxmemory, lower high_water, or let the sources take their outcomes"
        )
    if code == "NOPERM":
        return (
            f"this user may not do that: {words}; acker-redis acl ROLE NAMESPACE prints a line "
            "that grants the rights of a role"
        )
    return f"Redis refused the user or password: {words}"
