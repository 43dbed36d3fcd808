"""Reports messages that a bolt began to process and then forgot."""

import logging
import sys
from typing import Protocol

log = logging.getLogger(__name__)

MAX_PLACES = 100
"""Maximum number of places that are reported, each once."""
_reported: set[tuple[str, int]] = set()


class Begun(Protocol):
    """The state of messages in process."""

    @property
    def forgotten(self) -> bool:
        """Whether no attempt was made to ack or fail them, by the process that began them."""


class Reported:
    """Base of the handles: logs a warning when a handle is deleted whose messages were forgotten.

    The usual cause is ``bolt.process(..)`` without ``with``: nothing fails, and each tree expires.
    The place is the line that dropped the handle. It is found then, so that handles cost no more.
    """

    __slots__ = ("processing",)

    processing: Begun

    def __del__(self) -> None:
        if getattr(self, "processing", None) is None or not self.processing.forgotten:
            return
        if sys.is_finalizing() or len(_reported) >= MAX_PLACES:
            return
        frame = sys._getframe(1)
        place = frame.f_code.co_filename, frame.f_lineno
        if place not in _reported:
            _reported.add(place)
            log.warning(
                "%s:%d: messages that bolt.process() began were dropped here without an ack or a "
                "failure, so their trees expire: use `with bolt.process(..) as t`, or call t.ack() "
                "or t.fail() (reported once for each line)",
                *place,
            )
