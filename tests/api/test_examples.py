"""The examples in docstrings are correct."""

import doctest
import importlib
import pkgutil

import acker_api


def test_examples_do_what_they_say() -> None:
    names = [name for _, name, _ in pkgutil.walk_packages(acker_api.__path__, "acker_api.")]
    results = [doctest.testmod(importlib.import_module(name)) for name in names]
    assert not sum(result.failed for result in results)
    assert sum(result.attempted for result in results) > 3
