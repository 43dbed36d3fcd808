"""Options of the data source ``acker-outcomes``."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold.target import URL_VARIABLE, Target
from acker_redis.transport.urls import RedisUrl

MAX_ENTRIES = 10_000
"""Maximum entries per shard of a micro-batch: its offset lists their ids, at 20 bytes each."""
_NAMES = (
    "namespace",
    "source",
    "url",
    "username",
    "password",
    "expand",
    "maxEntriesPerTrigger",
    "failOnDataLoss",
)


@dataclass(frozen=True)
class OutcomeOptions:
    """The options of a read of verdicts. The repr shows no password."""

    target: Target
    source: str
    """The source whose verdicts are read."""
    expand: bool = False
    """Whether acks and touches of a block have one row per tree, too."""
    max_entries: int = 256
    """Maximum entries of the stream per shard and micro-batch, 1 .. 10,000."""
    fail_on_data_loss: bool = True
    """Whether to fail if entries of a micro-batch were deleted; otherwise warn."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "OutcomeOptions":
        """Return the options that Spark gives as text, with names in any case.

        Raises ConfigError that names the invalid option and its valid values.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in given.keys() - {known.lower() for known in _NAMES}:
            # load(path) adds the option path. Spark uses names like __this itself.
            if name != "path" and not name.startswith("__"):
                hint = "; the source whose verdicts to read is the option source"
                raise ConfigError(
                    f"option {name}: acker-outcomes has no such option; its options are "
                    f"{', '.join(_NAMES)}{hint if name == 'task' else ''}"
                )
        for name, what in (("namespace", "NAMESPACE"), ("source", "SOURCE")):
            if not given.get(name):
                raise ConfigError(f"option {name} is missing: .option('{name}', '{what}')")
            check_name(f"{name} (option {name})", given[name])
        return cls(
            target=target_of(given),
            source=given["source"],
            expand=_boolean(given, "expand", default=False),
            max_entries=number_of(given, "maxEntriesPerTrigger", default=256, most=MAX_ENTRIES),
            fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        )


def target_of(given: Mapping[str, str]) -> Target:
    """Return the target of the options ``url``, ``username`` and ``password``.

    Raises ConfigError if one of them is missing or invalid.
    """
    url = given.get("url") or os.environ.get(URL_VARIABLE)
    if not url:
        raise ConfigError(
            "option url is missing: .option('url', 'redis://HOST:6379/0'), or set "
            f"{URL_VARIABLE} in the environment of the driver before its Spark session starts"
        )
    try:
        url = _with_login(url, given.get("username"), given.get("password"))
        return Target.find(given["namespace"], url)
    except ConfigError as error:
        raise ConfigError(f"option url: {error}") from None


def _with_login(url: str, username: str | None, password: str | None) -> str:
    """Return the URL with user name and password. A ConfigError from here contains neither."""
    RedisUrl.parse(url)
    if not username and not password:
        return url
    if not password:
        raise ConfigError("the option username is set, and the option password is missing")
    scheme, _, rest = url.strip().partition("://")
    parsed = RedisUrl.parse(url)
    if parsed.username or parsed.password or "@" in rest:
        raise ConfigError(
            "both the URL and the options username and password have a user name or password: "
            "set them in one place"
        )
    return f"{scheme}://{quote(username or '', safe='')}:{quote(password, safe='')}@{rest}"


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = str(given.get(name.lower(), default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, not {text!r}")
    return text == "true"


def number_of(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return the option as a number from 1 to ``most``. Raises ConfigError for any other value."""
    text = str(given.get(name.lower(), default)).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= most):
        raise ConfigError(f"option {name} must be a number from 1 to {most}, not {text!r}")
    return int(text)
