"""Options of the data source ``acker``."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.apply import OnChanged
from acker_redis.spark.fold.target import Target
from acker_redis.spark.streams.outcome_options import number_of, target_of

MAX_STAGED = 64 << 20
"""Maximum bytes of a batch that go through the driver; the default of ``maxStagedBytes``."""
_MOST = 999_999_999
_NAMES = (
    "namespace",
    "app",
    "url",
    "username",
    "password",
    "onChangedBatch",
    "maxStagedBytes",
)
_SPARK_OWN = ("checkpointlocation",)
_LONGEST = 128
"""Maximum characters of a lane's name."""


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write. The repr shows no password."""

    target: Target
    lane: str
    """Name of the durable lane of the query or run; random for a run without a name."""
    what: str
    """The query or run, for messages."""
    on_changed: OnChanged = "raise"
    most: int = MAX_STAGED
    """Maximum bytes that a batch, and each of its tasks, may stage."""

    @classmethod
    def parse(cls, options: Mapping[str, str], streaming: bool) -> "SinkOptions":
        """Return the options that Spark gives as text, with names in any case.

        Raises ConfigError that names the invalid option and its valid values.
        """
        given = {name.lower(): value for name, value in options.items()}
        names = (*_NAMES, "query" if streaming else "run")
        for name in given.keys() - {known.lower() for known in names} - {*_SPARK_OWN}:
            if not name.startswith("__"):
                hint = {
                    "run": "; run is for df.write, a streaming query has the option query",
                    "query": "; query is for a streaming query, df.write has the option run",
                }.get(name, "")
                raise ConfigError(
                    f"option {name}: acker has no such option; its options are "
                    f"{', '.join(names)}{hint}"
                )
        for name in ("namespace", "app", "query", "run"):
            # An empty name of a run is an error, and not a run without a name: every run without a
            # name is applied.
            if name in given:
                check_name(f"{name} (option {name})", given[name])
        if not given.get("namespace"):
            raise ConfigError("option namespace is missing: .option('namespace', 'NAMESPACE')")
        lane = _query_lane(given) if streaming else _run_lane(given)
        on_changed = given.get("onchangedbatch", "raise")
        if on_changed not in ("raise", "fail_trees"):
            raise ConfigError(
                f"option onChangedBatch must be 'raise' or 'fail_trees', not {on_changed!r}"
            )
        return cls(
            target_of(given),
            lane,
            f"{names[-1]} {given.get(names[-1], '')}".strip(),
            cast(OnChanged, on_changed),
            number_of(given, "maxStagedBytes", default=MAX_STAGED, most=_MOST),
        )


def _query_lane(given: Mapping[str, str]) -> str:
    if not given.get("app"):
        raise ConfigError(_NO_APP)
    if not given.get("query"):
        raise ConfigError(
            "option query is missing: .option('query', 'NAME'). Spark does not give a sink the id "
            "of its query, so each batch is applied once under this name. No other query of this "
            "app may have the name, and it belongs to one checkpoint: with a new checkpoint batch "
            "ids start again at 0, so the query needs a new name"
        )
    return lanes.lane_of(given["app"], given["query"])


def _run_lane(given: Mapping[str, str]) -> str:
    if "run" not in given:
        return f"@spark-run/{secrets.token_hex(16)}"
    if not given.get("app"):
        raise ConfigError(_NO_APP)
    lane = f"@spark-run/{given['app']}/{given['run']}"
    if len(lane) > _LONGEST:
        raise ConfigError(
            "option run: app and run must have at most 116 characters together, not "
            f"{len(given['app'] + given['run'])}"
        )
    return lane


_NO_APP = (
    "option app is missing: .option('app', 'APPLICATION'). The fences of the application's queries "
    "and runs carry this name, so it must never change"
)
