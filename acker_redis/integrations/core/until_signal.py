"""End a loop by SIGTERM or SIGINT: what the consumers of the integrations share."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def until_signal(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop()`` at the first SIGTERM or SIGINT in a ``with`` block; a second acts as before.

    Outside of the main thread, which alone receives signals, the block is a plain one.

    Examples:
        >>> stopped = threading.Event()
        >>> with until_signal(stopped.set):
        ...     signal.raise_signal(signal.SIGTERM)
        >>> stopped.is_set()
        True

    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def on_signal(*_: object) -> None:
        restore()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()
