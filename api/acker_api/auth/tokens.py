"""Roles, and the tokens that carry them.

A token is a random text; only its digest is kept here. It has a name, which the audit log records
with each action, a role, and namespaces.
"""

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from acker_api.settings import PREFIX, ApiSettings, check_token
from acker_redis.errors import ConfigError
from acker_redis.operate import NAME


class Role(StrEnum):
    """The rights of a caller."""

    METRICS = "metrics"
    """Reads ``/metrics``, which names all namespaces."""
    VIEWER = "viewer"
    """Reads everything of its namespaces but ids: see :meth:`Who.sees_ids`."""
    OPERATOR = "operator"
    """Fails and touches trees, forces ticks, and changes settings of a namespace."""
    ADMIN = "admin"
    """Creates and drops namespaces too."""


_RANKS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True)
class Who:
    """A caller, and its rights.

    >>> alice = Who("alice", Role.OPERATOR, ("orders", "shop-*"))
    >>> alice.may(Role.VIEWER, "shop-eu"), alice.may(Role.ADMIN, "orders"), alice.sees("bills")
    (True, False, False)
    """

    name: str
    role: Role
    namespaces: tuple[str, ...] | None = None
    """Names, and prefixes that end with ``*``; None: all."""
    metrics: bool = True
    """Whether the caller may read ``/metrics``, if it may see all namespaces."""
    by_cookie: bool = False
    """Whether the caller is known by a cookie: then a page of another site may send the request."""

    @property
    def everywhere(self) -> bool:
        """Whether the caller may see all namespaces."""
        return self.namespaces is None

    def sees(self, namespace: str) -> bool:
        """Return whether the caller may see a namespace."""
        return self.namespaces is None or any(
            namespace.startswith(each[:-1]) if each.endswith("*") else namespace == each
            for each in self.namespaces
        )

    def sees_ids(self, namespace: str) -> bool:
        """Return whether the caller may see ids of messages, and XORs of them.

        A checksum is the XOR of all outstanding ids: one row, or one request to a service that
        believes the header ``acker-tuple``, completes the tree. So it takes the role that may end
        trees.
        """
        return self.may(Role.OPERATOR, namespace)

    def may(self, role: Role, namespace: str | None = None) -> bool:
        """Return whether the caller has a role, in a namespace or, if None, at all."""
        if role is Role.METRICS:
            return self.metrics and self.everywhere
        if self.role is Role.METRICS or _RANKS.index(self.role) < _RANKS.index(role):
            return False
        return namespace is None or self.sees(namespace)


ANYBODY = Who("anybody", Role.ADMIN)
"""The caller on loopback, if no token is set."""


@dataclass(frozen=True)
class Grant:
    """The digest of a token, and its owner."""

    digest: bytes
    who: Who


class Tokens:
    """The valid tokens.

    >>> tokens = Tokens.of(ApiSettings(token="0123456789abcdef", metrics_token="fedcba9876543210"))
    >>> [tokens.find(each).who.name for each in ("0123456789abcdef", "fedcba9876543210")]
    ['admin', 'metrics']
    >>> tokens.find("another") is None
    True
    """

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self._grants = grants
        for what in ("name", "token"):
            values = [g.who.name if what == "name" else g.digest for g in grants]
            if len(set(values)) < len(values):
                raise ConfigError(
                    f"two tokens have the same {what}; TOKEN is named admin, METRICS_TOKEN metrics"
                )

    @classmethod
    def of(cls, settings: ApiSettings) -> "Tokens":
        """Return the tokens of the settings. Raise ConfigError if one is unreadable or weak."""
        found: list[Grant] = []
        if token := settings.read_token():
            found.append(Grant(digest(token), Who("admin", Role.ADMIN)))
        if token := settings.read_metrics_token():
            found.append(Grant(digest(token), Who("metrics", Role.METRICS)))
        if (text := settings.read_tokens()) is not None:
            found += _parse(text)
        return cls(tuple(found))

    @property
    def open(self) -> bool:
        """Whether every caller may do everything: all tokens, if any, are for metrics only."""
        return all(grant.who.role is Role.METRICS for grant in self._grants)

    @property
    def for_metrics(self) -> bool:
        """Whether ``/metrics`` needs a token."""
        return bool(self._grants)

    def find(self, token: str) -> Grant | None:
        """Return the owner of a token; None for an unknown token.

        All are compared, in constant time, so the duration reveals nothing of them.
        """
        shown, found = digest(token), None
        for grant in self._grants:
            if hmac.compare_digest(shown, grant.digest):
                found = grant
        return found

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants)


def digest(token: str) -> bytes:
    """Return the digest of a token, which is kept in its place."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")
    role: Literal["metrics", "viewer", "operator", "admin"]
    token: SecretStr
    namespaces: list[str] | None = Field(default=None, min_length=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tokens: list[_Entry] = Field(min_length=1)


_KNOWN = {"tokens", *_Entry.model_fields}


def _parse(text: str) -> list[Grant]:
    """Parse a text in TOML. Raise ConfigError, which names the place and quotes nothing."""
    name = f"{PREFIX}TOKENS"
    try:
        entries = _File(**tomllib.loads(text)).tokens
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at (line \d+|end of document)", str(error))
        where = f" ({place[1]})" if place else ""
        raise ConfigError(
            f"{name} is not TOML{where}; docs/reference/rest.md has an example"
        ) from None
    except ValidationError as error:
        # An unknown key may be a secret in the wrong place.
        wrong = "; ".join(
            f"{'.'.join(str(p) if p in _KNOWN or type(p) is int else '?' for p in each['loc'])}: "
            f"{each['msg']}"
            for each in error.errors(include_input=False, include_url=False)
        )
        raise ConfigError(f"{name}: {wrong}") from None
    except TypeError:
        raise ConfigError(f"{name} must be [[tokens]], each with name, role and token") from None
    return [_grant(entry, f"{name}: the token of {entry.name}") for entry in entries]


def _grant(entry: _Entry, what: str) -> Grant:
    names = None if entry.namespaces is None else tuple(entry.namespaces)
    for each in names or ():
        if not re.fullmatch(rf"({NAME})?\*|{NAME}", each):
            raise ConfigError(f"{what}: a namespace must be a name, or a prefix and a *")
    role = Role(entry.role)
    if role is Role.METRICS and names is not None:
        raise ConfigError(f"{what}: /metrics names all namespaces; remove namespaces")
    token = check_token(entry.token.get_secret_value(), what)
    return Grant(digest(token), Who(entry.name, role, names))
