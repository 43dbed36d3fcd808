"""A pytest plugin that runs the tests of one mutant after the other, in one process.

It collects the tests once and runs each of them, to learn its seconds and the scripts that it
calls. Then it reads a JSON list of tests from standard input for each mutant, and runs them in
this order until one fails. Its answers are lines of JSON in the file ``ACKER_ANSWERS``.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from acker_redis.protocol import scripts

_load = scripts.load
_used: set[str] = set()
_failed: list[str] = []


def _recorded(name: str) -> scripts.Script:
    _used.add(name)
    return _load(name)


scripts.load = _recorded  # type: ignore[assignment]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notice a failure."""
    if report.failed:
        _failed.append(report.nodeid)


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests of each mutant."""
    items: dict[str, Any] = {item.nodeid: item for item in session.items}
    ends: list[Any] = [session.items[0], session.items[-1]]
    with Path(os.environ["ACKER_ANSWERS"]).open("w") as answers:

        def answer(found: Any) -> None:
            print(json.dumps(found), file=answers, flush=True)

        found = {name: _run(item, ends) for name, item in items.items()}
        print(*_failed, file=sys.stderr)
        answer({} if _failed else found)
        for request in sys.stdin:
            _failed.clear()
            _load.cache_clear()
            for name in json.loads(request):
                _run(items[name], ends)
                if _failed:
                    break
            answer(_failed)
    return True


def _run(item: Any, ends: list[Any]) -> tuple[float, list[str]]:
    """Run a test, and return its seconds and its scripts.

    The next test, as pytest sees it, is in another folder: so only fixtures of the session stay.
    """
    _used.clear()
    begun = time.monotonic()
    item._initrequest()
    item.config.hook.pytest_runtest_protocol(
        item=item, nextitem=ends[item.path.parent == ends[0].path.parent]
    )
    return time.monotonic() - begun, sorted(_used)
