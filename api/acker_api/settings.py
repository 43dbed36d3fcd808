"""Settings of the admin service, from the environment."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from acker_api.paths import OWN
from acker_redis.errors import ConfigError
from acker_redis.operate import read_secret, settings_error

PREFIX = "ACKER_REDIS_API_"


class ApiSettings(BaseSettings):
    """Settings of the service: its address, tokens and limits. ``Settings`` has those of Redis.

    Each field is a variable ``ACKER_REDIS_API_<NAME>``.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, hide_input_in_errors=True
    )

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; any other than loopback requires a token",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port; 0: any free port")
    root_path: str = Field(
        default="",
        pattern=r"^((/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)?$",
        description="Path under which a proxy serves it, such as /acker; the proxy may remove the "
        "path from requests or not",
    )
    token: SecretStr | None = Field(
        default=None, description="Bearer token that may do everything; its name is admin"
    )
    token_file: Path | None = Field(
        default=None, description="File that holds the token, such as a container's secret"
    )
    tokens: SecretStr | None = Field(
        default=None,
        description="Tokens by name, role and namespace, as TOML; see docs/reference/rest.md",
    )
    tokens_file: Path | None = Field(default=None, description="File that holds these tokens")
    metrics_token: SecretStr | None = Field(
        default=None, description="Bearer token for /metrics only"
    )
    metrics_token_file: Path | None = Field(
        default=None, description="File that holds the token for /metrics"
    )
    allowed_hosts: str = Field(
        default="",
        description="Accepted names in the header Host, separated by commas; *.example.org: all "
        "names below it; unset: any name, but on loopback only the names of loopback",
    )
    session_for: int = Field(
        default=12 * 3600,
        ge=60,
        le=30 * 86400,
        description="Seconds that a browser stays logged in",
    )
    https_only: bool = Field(
        default=False,
        description="Browsers use https only: the cookie for http is ignored",
    )
    rate_limit: int = Field(
        default=3000,
        ge=0,
        le=10**6,
        description="Requests per minute per token, or without a token per address; 0: no limit",
    )
    max_connections: int = Field(
        default=2048,
        ge=1,
        le=10**6,
        description="Maximum of open connections; fewer if the limit of file descriptors is low",
    )
    max_connections_of_address: int = Field(
        default=512,
        ge=0,
        le=10**6,
        description="Maximum of open connections per address, at most half of all; 0: no limit, "
        "for a service with a proxy in front",
    )
    max_body: int = Field(
        default=65536, ge=1024, le=2**20, description="Maximum size of a request body, in bytes"
    )
    audit_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Days for which entries of the audit log are kept",
    )
    metrics: bool = Field(default=True, description="Serve /metrics")
    docs: bool | None = Field(
        default=None,
        description="Serve /docs and /openapi.json, without a token; unset: if it listens on "
        "loopback",
    )
    ready_rotation: bool = Field(
        default=True,
        description="/readyz fails while a tick is overdue in every namespace; false: it does not",
    )
    ready_canary: bool = Field(
        default=True,
        description="/readyz tracks and acks a canary tree, if the user in Redis may write; false: "
        "it only reads",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of processes; rate limits are divided among them",
    )
    answer_within: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="Timeout for reading one namespace, in seconds; raise it for a slow Redis",
    )
    scrape_within: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="Timeout for /metrics and /readyz to read all namespaces, in seconds",
    )
    stop_within: int = Field(
        default=5, ge=1, le=600, description="Seconds for running requests to end at shutdown"
    )

    @field_validator("root_path")
    @classmethod
    def _is_no_own_path(cls, path: str) -> str:
        if path.split("/")[1:2] and path.split("/")[1] in OWN:
            raise ValueError(f"must not begin with a path of the service: {', '.join(OWN)}")
        return path

    @classmethod
    def read(cls, **given: Any) -> "ApiSettings":
        """Return settings from the environment; a ``given`` value that is not None overrides it.

        Raise ConfigError for an invalid value: it names the variable and quotes no value.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise ConfigError(settings_error(error, PREFIX)) from None

    def read_token(self) -> str | None:
        """Return the token, from its file if one is set; None if there is none. See ``_secret``."""
        return _secret(self.token, self.token_file, f"{PREFIX}TOKEN")

    def read_metrics_token(self) -> str | None:
        """Return the token for ``/metrics``, likewise."""
        return _secret(self.metrics_token, self.metrics_token_file, f"{PREFIX}METRICS_TOKEN")

    def read_tokens(self) -> str | None:
        """Return the TOML text of the tokens, from its file if one is set; None without tokens."""
        return _text(self.tokens, self.tokens_file, f"{PREFIX}TOKENS")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of ``allowed_hosts``, in lower case."""
        return tuple(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())


def open_files(settings: ApiSettings) -> list[str]:
    """Return a warning for each secret file that other users of this machine may access."""
    found = []
    for name in ("token", "tokens", "metrics_token"):
        path: Path | None = getattr(settings, f"{name}_file")
        try:
            mode = path.stat().st_mode if path and os.name == "posix" else 0
        except OSError:
            continue  # read_secret() reports the error
        if mode & 0o077:
            found.append(
                f"{PREFIX}{name.upper()}_FILE: {path} has mode {mode & 0o777:04o}, so other users "
                f"of this machine may access it; chmod 600 {path}"
            )
    return found


SHORTEST_TOKEN = 16
"""Minimum length of a token, in characters: shorter ones can be guessed."""


def check_token(token: str, name: str) -> str:
    """Return a token. Raise ConfigError if it is weak, or cannot be sent in a header."""
    if len(token) < SHORTEST_TOKEN or not all("!" <= each <= "~" for each in token):
        raise ConfigError(
            f"{name} must have {SHORTEST_TOKEN} or more ASCII characters and no spaces; generate "
            "one: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def _secret(value: SecretStr | None, file: Path | None, name: str) -> str | None:
    """Return a token. Raise ConfigError if it is set twice, unreadable, weak or cannot be sent."""
    token = _text(value, file, name)
    return None if token is None else check_token(token, name)


def _text(value: SecretStr | None, file: Path | None, name: str) -> str | None:
    if value is not None and file is not None:
        raise ConfigError(f"{name} and {name}_FILE are both set; unset one of them")
    if file is not None:
        return read_secret(file, f"{name}_FILE")
    return None if value is None else value.get_secret_value()
