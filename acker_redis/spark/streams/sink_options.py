"""Options of the data source ``acker``."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold import turns as lanes
from acker_redis.spark.fold.apply import OnChanged
from acker_redis.spark.fold.target import Target
from acker_redis.spark.streams.outcome_options import number_of, target_of

MAX_STAGED = 64 << 20
"""Bytes of a batch that go through the driver, unless ``maxStagedBytes`` says another number."""
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
"""Letters of a lane."""


@dataclass(frozen=True)
class SinkOptions:
    """What a write was asked for. Its repr shows no password."""

    target: Target
    lane: str
    """Durable lane of the query or run; a run without a name has a random one."""
    what: str
    """The query or run, for people."""
    on_changed: OnChanged = "raise"
    most: int = MAX_STAGED
    """Bytes that a batch may stage, and each of its tasks."""

    @classmethod
    def parse(cls, options: Mapping[str, str], streaming: bool) -> "SinkOptions":
        """Options as Spark has them: text, and names in any case.

        Raises ConfigError that names the option and what it may be.
        """
        given = {name.lower(): value for name, value in options.items()}
        names = (*_NAMES, "query" if streaming else "run")
        for name in given.keys() - {known.lower() for known in names} - {*_SPARK_OWN}:
            if not name.startswith("__"):
                hint = {
                    "run": "; run names a run of df.write, a streaming query has query",
                    "query": "; query names a streaming query, df.write has run",
                }.get(name, "")
                raise ConfigError(
                    f"option {name}: acker has none of this name, it has {', '.join(names)}{hint}"
                )
        for name in ("namespace", "app", "query", "run"):
            # An empty run is no run without a name: that one would be applied whenever it is made.
            if name in given:
                check_name(f"{name} (option {name})", given[name])
        if not given.get("namespace"):
            raise ConfigError("option namespace is missing: .option('namespace', 'NAMESPACE')")
        lane = _query_lane(given) if streaming else _run_lane(given)
        on_changed = given.get("onchangedbatch", "raise")
        if on_changed not in ("raise", "fail_trees"):
            raise ConfigError(
                f"option onChangedBatch is 'raise' or 'fail_trees', and not {on_changed!r}"
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
            "option query is missing: .option('query', 'NAME'). Spark does not tell a sink which "
            "query it belongs to, and a batch is applied once by its name: one that no other query "
            "of this app has, and that goes with one checkpoint (with a new checkpoint batch ids "
            "start over, and it needs a new name)"
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
            "option run: app and run have 116 letters together at most, and these have "
            f"{len(given['app'] + given['run'])}"
        )
    return lane


_NO_APP = (
    "option app is missing: .option('app', 'APPLICATION'). It names the application for ever: its "
    "queries and runs are called after it"
)
