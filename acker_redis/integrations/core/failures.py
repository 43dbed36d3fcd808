"""What happens to a message that failed: the same for each transport."""

import logging
from collections.abc import Callable
from typing import Any

from acker_redis.integrations.core.work import Work

log = logging.getLogger(__name__)

OnFailure = Callable[..., object]
"""``on_failure(message, error)`` of the application."""


def to_tell(work: Work[Any], on_failure: OnFailure | None, place: object) -> OnFailure | None:
    """Return ``on_failure`` if it must be called with ``work.why`` before the work is settled.

    After the call, ask again: then the rows of the work may be sent.

    Args:
        work: A finished message.
        on_failure: The function of the application, if there is one.
        place: Where the message was, for the log.

    Raises:
        BaseException: The error of ``on_failure``, or of what it has sent. Without ``on_failure``,
            the error of a message without an id, of which no source is told.

    """
    error = work.error
    if not isinstance(error, BaseException):
        return None
    if work.why is not None:
        raise error
    log.warning("%s failed: %r", place, error)
    if on_failure is not None:
        work.told()
    elif not work.tracked:
        raise error
    return on_failure
