"""Settings of the command line and the services, from environment variables.

Each field is a variable ``ACKER_REDIS_<NAME>``; an argument on the command line overrides it. The
table in docs/reference/settings.md is generated from these fields. Libraries do not read them: the
caller of ``Acker.from_url`` passes the URL.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from acker_redis.errors import ConfigError
from acker_redis.sync.client import Acker
from acker_redis.transport.bounded import bound
from acker_redis.transport.connect import connect, connect_async
from acker_redis.transport.urls import NOT_SHOWN, RedisUrl, shown

if TYPE_CHECKING:
    from acker_redis.aio import AsyncAcker

DEFAULT_URL = "redis://127.0.0.1:6379/0"


class Settings(BaseSettings):
    """Where and how to connect, and what to log.

    >>> settings = Settings(url="redis://alice@127.0.0.1:6379/0", password="secret")
    >>> print(settings.shown_url)
    redis://alice:***@127.0.0.1:6379/0
    """

    model_config = SettingsConfigDict(
        env_prefix="ACKER_REDIS_", env_ignore_empty=True, frozen=True, hide_input_in_errors=True
    )

    url: SecretStr = Field(
        default=SecretStr(DEFAULT_URL),
        description="Redis: redis://, redis+cluster://, redis+sentinel:// (rediss for TLS) or "
        "unix://",
    )
    username: str | None = Field(
        default=None, min_length=1, description="User name, if the URL has none"
    )
    password: SecretStr | None = Field(default=None, description="Password, if the URL has none")
    password_file: Path | None = Field(
        default=None, description="File that holds the password, such as a container's secret"
    )
    timeout: float = Field(
        default=5.0, gt=0, le=3600, description="Seconds for a connection, and for each reply"
    )
    retry_for: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Seconds for which a call without a reply is sent again",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that the services log"
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="text: a readable line per event; json: one JSON object per line",
    )

    @classmethod
    def read(cls, **given: Any) -> "Settings":
        """Read the settings from the environment; ``given`` values that are not None override it.

        Raises ConfigError, which names the variable and quotes no value.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise ConfigError(settings_error(error, "ACKER_REDIS_")) from None

    @property
    def shown_url(self) -> str:
        """The URL for display, with its user and without its password."""
        try:
            return shown(self._target(read=False))
        except ConfigError:
            return NOT_SHOWN

    @property
    def complete_url(self) -> str:
        """The URL with user and password, for programs that take nothing else; never display it."""
        url, target = self.url.get_secret_value().strip(), self._target()
        if not target.username and not target.password:
            return url
        scheme, _, rest = url.partition("://")
        login = f"{quote(target.username or '', safe='')}:{quote(target.password or '', safe='')}"
        return f"{scheme}://{login}@{rest.rpartition('@')[2]}"

    def connect(self) -> Any:
        """Return a client of redis-py that does not retry by itself; see :func:`connect`.

        A reply of more than 32 MB is a SchemaError: see :mod:`acker_redis.transport.bounded`.
        """
        return bound(connect(self._target(), self.timeout))

    def connect_async(self) -> Any:
        """Return an asyncio client; see :meth:`connect`."""
        return bound(connect_async(self._target(), self.timeout))

    def acker(self, namespace: str, client: Any = None) -> Acker:
        """Return the client of a namespace, with its own connections unless ``client`` is given."""
        return Acker(client or self.connect(), namespace, retry_for=self.retry_for)

    def async_acker(self, namespace: str, client: Any = None) -> "AsyncAcker":
        """Return the asyncio client of a namespace; see :meth:`acker`."""
        from acker_redis.aio import AsyncAcker

        return AsyncAcker(client or self.connect_async(), namespace, retry_for=self.retry_for)

    def _target(self, read: bool = True) -> RedisUrl:
        target = RedisUrl.parse(self.url.get_secret_value())
        return replace(
            target,
            username=target.username or self.username,
            password=target.password or self._password(read),
        )

    def _password(self, read: bool) -> str | None:
        """Return the password, or with ``read=False`` a placeholder for one in a file."""
        if self.password:
            return self.password.get_secret_value()
        if not self.password_file:
            return None
        return read_secret(self.password_file, "ACKER_REDIS_PASSWORD_FILE") if read else "***"


def read_secret(path: Path, name: str) -> str:
    """Return the content of a secret's file, without a byte order mark and the line's end.

    Raises ConfigError, which names the setting and never quotes the content, if the file is empty
    or unreadable.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{name}: cannot read {path}: {reason}") from None
    if not text:
        raise ConfigError(f"{name}: {path} is empty; write the secret into it")
    return text


def settings_error(error: ValidationError, prefix: str) -> str:
    """Describe invalid settings by the names of their variables; no value is quoted."""
    wrong = []
    for each in error.errors(include_input=False, include_url=False):
        name = "_".join(str(part) for part in each["loc"][:1]).upper()
        wrong.append(f"{prefix}{name}: {each['msg']}")
    return "; ".join(wrong)
