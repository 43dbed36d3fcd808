"""The cases on every implementation: replies, verdicts and states, byte by byte."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from acker_redis.protocol import functions, scripts
from proof.cases import lines
from proof.cases.run import run
from tests.languages.cases import for_clusters
from tests.languages.server import Server

CASES = lines.load()


@pytest.mark.parametrize("topic", [*dict.fromkeys(name.partition(":")[0] for name in CASES)])
def test_implementation_agrees_with_the_cases(server_of: Callable[[], Any], topic: str) -> None:
    """One test per file: one test per case would take ten times as long."""
    client: Any = server_of()
    cases = {name: case for name, case in CASES.items() if name.startswith(f"{topic}: ")}
    if isinstance(client, redis.RedisCluster):
        cases = for_clusters(cases)
        nodes: Any = client.get_primaries()  # type: ignore[no-untyped-call]
        client = Server([node.port for node in nodes], client)
    for name, case in cases.items():
        try:
            run(Functions(client) if functions.are_used(client) else client, case)
        except BaseException as error:
            error.add_note(f"case {name!r}")
            raise
    client.flushall()


class Functions:
    """A client that calls the read-only scripts as functions."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute_command(self, command: str, *words: Any) -> Any:
        for name in functions.NAMES if command == "EVALSHA" else ():
            if words[0] == scripts.load(name).sha:
                return self._client.execute_command(
                    "FCALL_RO", functions.function(name), *words[1:]
                )
        return self._client.execute_command(command, *words)
