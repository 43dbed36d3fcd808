"""Who may do what: roles, and the tokens that stand for somebody.

A token is drawn at random; only its digest is kept here. It has a name, under which the audit log
tells what was done with it, a role, and namespaces.
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


class Role(StrEnum):
    """What one may do."""

    METRICS = "metrics"
    """Reads ``/metrics``, which names all namespaces."""
    VIEWER = "viewer"
    """Reads everything of its namespaces."""
    OPERATOR = "operator"
    """Fails and touches trees, ticks, and changes settings of a living namespace."""
    ADMIN = "admin"
    """Creates and drops namespaces too."""


_RANKS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True)
class Who:
    """Somebody, and what they may do.

    >>> alice = Who("alice", Role.OPERATOR, ("orders", "shop-*"))
    >>> alice.may(Role.VIEWER, "shop-eu"), alice.may(Role.ADMIN, "orders"), alice.sees("bills")
    (True, False, False)
    """

    name: str
    role: Role
    namespaces: tuple[str, ...] | None = None
    """Names, and beginnings of names with a ``*`` behind; None: all."""
    metrics: bool = True
    """Whether ``/metrics`` is open to them, if they see everything."""
    by_cookie: bool = False
    """Whether a browser has said so by itself: a request may then be another page's idea."""

    @property
    def everywhere(self) -> bool:
        """Whether nothing is kept from them."""
        return self.namespaces is None

    def sees(self, namespace: str) -> bool:
        """Whether a namespace is one of theirs."""
        return self.namespaces is None or any(
            namespace.startswith(each[:-1]) if each.endswith("*") else namespace == each
            for each in self.namespaces
        )

    def may(self, role: Role, namespace: str | None = None) -> bool:
        """Whether they have a role, in a namespace or, if None, at all."""
        if role is Role.METRICS:
            return self.metrics and self.everywhere
        if self.role is Role.METRICS or _RANKS.index(self.role) < _RANKS.index(role):
            return False
        return namespace is None or self.sees(namespace)


ANYBODY = Who("anybody", Role.ADMIN)
"""Who asks on loopback, where no token is set."""


@dataclass(frozen=True)
class Grant:
    """A token, by its digest, and whose it is."""

    digest: bytes
    who: Who


class Tokens:
    """The tokens that are known.

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
                    f"two tokens have one {what}; TOKEN is named admin, METRICS_TOKEN metrics"
                )

    @classmethod
    def of(cls, settings: ApiSettings) -> "Tokens":
        """As the settings say; ConfigError if a token cannot be read or is weak."""
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
        """Whether everybody may do everything: no token is for more than metrics."""
        return all(grant.who.role is Role.METRICS for grant in self._grants)

    @property
    def for_metrics(self) -> bool:
        """Whether a token is needed for ``/metrics``."""
        return bool(self._grants)

    def find(self, token: str) -> Grant | None:
        """Whose a token is.

        Each is compared, and in constant time: how long it takes tells nothing of them.
        """
        shown, found = digest(token), None
        for grant in self._grants:
            if hmac.compare_digest(shown, grant.digest):
                found = grant
        return found

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants)


def digest(token: str) -> bytes:
    """What is kept of a token."""
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
    """Grants of a text in TOML; ConfigError, which says where it is wrong and quotes nothing."""
    name = f"{PREFIX}TOKENS"
    try:
        entries = _File(**tomllib.loads(text)).tokens
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at (line \d+|end of document)", str(error))
        where = f" ({place[1]})" if place else ""
        raise ConfigError(f"{name} is not TOML{where}; docs/reference/rest.md has an example") from None
    except ValidationError as error:
        # A key that is not known may be a secret in the wrong place.
        wrong = "; ".join(
            f"{'.'.join(str(p) if p in _KNOWN or type(p) is int else '?' for p in each['loc'])}: "
            f"{each['msg']}"
            for each in error.errors(include_input=False, include_url=False)
        )
        raise ConfigError(f"{name}: {wrong}") from None
    except TypeError:
        raise ConfigError(f"{name} is [[tokens]], each with name, role and token") from None
    return [_grant(entry, f"{name}: the token of {entry.name}") for entry in entries]


def _grant(entry: _Entry, what: str) -> Grant:
    names = None if entry.namespaces is None else tuple(entry.namespaces)
    for each in names or ():
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,64}\*|[A-Za-z0-9_.-]{1,64}", each):
            raise ConfigError(f"{what}: a namespace is a name, or the beginning of names and a *")
    role = Role(entry.role)
    if role is Role.METRICS and names is not None:
        raise ConfigError(f"{what}: /metrics names all namespaces; leave them out")
    token = check_token(entry.token.get_secret_value(), what)
    return Grant(digest(token), Who(entry.name, role, names))
