"""How many messages a worker reads at once: few, if its handlers are slow."""

import time

ROUND = 0.1
"""Seconds that the messages of one batch should take: the batches are made to fit."""


class Pace:
    """Fits batches to the handlers, so that a worker holds few messages that others could have."""

    def __init__(self) -> None:
        self.fits = 1
        """Number of messages that take about ROUND seconds."""
        self.given = 0
        """Number of messages that were read last."""

    def fit(self, read_at: float) -> None:
        """Choose the next number; the messages that were read last were asked for at ``read_at``.

        >>> pace = Pace()
        >>> pace.given = 4
        >>> pace.fit(time.monotonic())
        >>> pace.fits
        8
        """
        given, self.given = self.given, 0
        if given:
            took = time.monotonic() - read_at
            if took > ROUND:
                self.fits = max(1, int(given * ROUND / took))
            else:
                self.fits = max(self.fits, 2 * given)
