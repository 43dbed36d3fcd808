"""Every public name has an example in its docstring, and every example is correct."""

import asyncio
import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import acker_redis
import acker_redis.aio
from acker_redis import AckerError
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker

PUBLIC = [
    *(getattr(acker_redis, name) for name in acker_redis.__all__),
    *(getattr(acker_redis.aio, name) for name in acker_redis.aio.__all__),
]
SKIPPED = ("acker_redis.spark", "acker_redis.__main__")
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(acker_redis.__path__, "acker_redis.")
    if not name.startswith(SKIPPED)
]


@pytest.fixture
def words(any_server: EmbeddedRedis) -> Iterator[dict[str, Any]]:
    """The names that an example may use without an import: the public names, and ``url``."""
    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.connection.client.flushall()
        acker.create(AckerConfig())
        names = {name: getattr(acker_redis, name) for name in acker_redis.__all__}
        names |= {name: getattr(acker_redis.aio, name) for name in acker_redis.aio.__all__}
        names["asyncio"] = asyncio
        yield names | {"url": any_server.url}
        acker.connection.client.flushall()


def _needs_example(thing: Any) -> bool:
    """Return whether a name needs an example; exceptions other than AckerError do not."""
    return not (isinstance(thing, type) and issubclass(thing, Exception)) or thing is AckerError


@pytest.mark.parametrize(
    "thing", [*filter(_needs_example, PUBLIC)], ids=lambda thing: thing.__name__
)
def test_every_public_name_has_an_example(thing: Any) -> None:
    assert ">>>" in (thing.__doc__ or ""), f"{thing.__name__} has no example"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_correct(name: str, words: dict[str, Any]) -> None:
    module = importlib.import_module(name)
    client = Acker.from_url(words["url"], "orders", timeout=60)
    for test in doctest.DocTestFinder().find(module, globs=vars(module) | words):
        if not test.examples:
            continue
        found: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=found.append)
        assert not found, "".join(found)
        # Each docstring starts with an empty namespace.
        client.connection.client.flushall()
        client.create(AckerConfig())
    client.close()


def test_a_name_without_an_example_is_found() -> None:
    with pytest.raises(AssertionError, match="has no example"):
        test_every_public_name_has_an_example(inspect)
