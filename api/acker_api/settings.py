"""Settings of the admin service, from the environment."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from acker_redis.errors import ConfigError
from acker_redis.ops.settings import explain, read_secret

PREFIX = "ACKER_REDIS_API_"


class ApiSettings(BaseSettings):
    """Where the service listens, and who may do what. What Redis it asks is in ``Settings``.

    Each field is a variable ``ACKER_REDIS_API_<NAME>``.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, hide_input_in_errors=True
    )

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; one that is not loopback needs a token",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port; 0 for any that is free")
    token: SecretStr | None = Field(
        default=None, description="Bearer token of an admin, named admin: it may do everything"
    )
    token_file: Path | None = Field(
        default=None, description="File that holds the token, such as a container's secret"
    )
    tokens: SecretStr | None = Field(
        default=None, description="Tokens by name, role and namespace, as TOML; see docs/reference/rest.md"
    )
    tokens_file: Path | None = Field(default=None, description="File that holds them")
    metrics_token: SecretStr | None = Field(
        default=None, description="Bearer token that opens /metrics and nothing else"
    )
    metrics_token_file: Path | None = Field(
        default=None, description="File that holds the token for /metrics"
    )
    allowed_hosts: str = Field(
        default="",
        description="Names that requests may give as Host, with commas, *.example.org for those "
        "below one; unset: any, or on loopback only its own names",
    )
    session_for: int = Field(
        default=12 * 3600,
        ge=60,
        le=30 * 86400,
        description="Seconds that a browser stays logged in",
    )
    https_only: bool = Field(
        default=False,
        description="Browsers come by https alone: only a cookie for https counts",
    )
    rate_limit: int = Field(
        default=3000,
        ge=0,
        le=10**6,
        description="Requests a minute of one token, or without one of one address; 0: any number",
    )
    max_connections: int = Field(
        default=2048,
        ge=1,
        le=10**6,
        description="Connections that may be open; fewer if the limit of descriptors is low",
    )
    max_connections_of_address: int = Field(
        default=512,
        ge=0,
        le=10**6,
        description="Connections of one address, half of all at most; 0, for a proxy: any number",
    )
    max_body: int = Field(
        default=65536, ge=1024, le=2**20, description="Bytes that the body of a request may have"
    )
    audit_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Days for which entries of the audit log are kept",
    )
    metrics: bool = Field(default=True, description="Serve /metrics")
    docs: bool = Field(
        default=False,
        description="Serve /docs and /openapi.json, to everyone",
    )
    ready_rotation: bool = Field(
        default=True,
        description="/readyz fails while a namespace is not rotated in time; no: only Redis counts",
    )
    ready_canary: bool = Field(
        default=True,
        description="/readyz sends a tree of its own the whole way, where its user may; no: it "
        "only reads",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve; limits of rate are shared out among them",
    )
    answer_within: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="Seconds that a namespace may take to be read; raise it for a slow Redis",
    )
    scrape_within: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="Seconds for /metrics and /readyz to read all namespaces",
    )
    stop_within: int = Field(
        default=5, ge=1, le=600, description="Seconds that requests may take when the service ends"
    )

    @classmethod
    def read(cls, **given: Any) -> "ApiSettings":
        """Settings from the environment; what is ``given`` and not None wins.

        Raises ConfigError, which names the variable and quotes no value.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise ConfigError(explain(error, PREFIX)) from None

    def read_token(self) -> str | None:
        """The token, out of its file if it is in one; None if there is none. See ``_secret``."""
        return _secret(self.token, self.token_file, f"{PREFIX}TOKEN")

    def read_metrics_token(self) -> str | None:
        """The token that opens ``/metrics`` only, likewise."""
        return _secret(self.metrics_token, self.metrics_token_file, f"{PREFIX}METRICS_TOKEN")

    def read_tokens(self) -> str | None:
        """The text with tokens by role, out of its file if it is in one; None if there is none."""
        return _text(self.tokens, self.tokens_file, f"{PREFIX}TOKENS")

    @property
    def hosts(self) -> tuple[str, ...]:
        """``allowed_hosts``, one by one, in small letters."""
        return tuple(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())


def open_files(settings: ApiSettings) -> list[str]:
    """A sentence for each file with secrets that other users of this machine may read."""
    found = []
    for name in ("token", "tokens", "metrics_token"):
        path: Path | None = getattr(settings, f"{name}_file")
        try:
            mode = path.stat().st_mode if path and os.name == "posix" else 0
        except OSError:
            continue  # reported when it is read
        if mode & 0o077:
            found.append(
                f"{PREFIX}{name.upper()}_FILE: {path} has mode {mode & 0o777:04o}, others than its "
                f"owner may use it; chmod 600 {path}"
            )
    return found


SHORTEST_TOKEN = 16
"""Characters of a token at least: what is shorter can be guessed."""


def check_token(token: str, name: str) -> str:
    """Return a token; ConfigError if it cannot be sent or is weak."""
    if len(token) < SHORTEST_TOKEN or not all("!" <= each <= "~" for each in token):
        raise ConfigError(
            f"{name} is {SHORTEST_TOKEN} or more ASCII characters without spaces; draw one: "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def _secret(value: SecretStr | None, file: Path | None, name: str) -> str | None:
    """A token; ConfigError if it is given twice, cannot be read, or cannot be sent or is weak."""
    token = _text(value, file, name)
    return None if token is None else check_token(token, name)


def _text(value: SecretStr | None, file: Path | None, name: str) -> str | None:
    if value is not None and file is not None:
        raise ConfigError(f"{name} and {name}_FILE are both set; unset one of them")
    if file is not None:
        return read_secret(file, f"{name}_FILE")
    return None if value is None else value.get_secret_value()
