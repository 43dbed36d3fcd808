"""The network between a producer and the shard: it loses, duplicates, delays and reorders."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from proof.oracle import Reply
from proof.simulate.batches import AnySent
from proof.simulate.clock import Clock
from proof.simulate.faults import Faults
from proof.simulate.service import Service

OnReply = Callable[[Reply], None]


class Network:
    """Carries requests to the service and replies back."""

    def __init__(
        self, clock: Clock, service: Service, faults: Faults, chance: random.Random
    ) -> None:
        self._clock, self._service, self._faults, self._chance = clock, service, faults, chance
        self._tick = service.config.tick_ms
        self.counts: Counter[str] = service.counts
        self._sent: list[AnySent] = []

    def delay(self) -> int:
        """Draw the ms that a request, reply or message takes."""
        if self._chance.random() < self._faults.reorder:
            self.counts["long delays"] += 1
            return self._chance.randrange(self._tick)
        return self._chance.randrange(self._tick // 40)

    def call(self, sent: AnySent, on_reply: OnReply) -> None:
        """Carry a batch to the shard; ``on_reply`` is called at most once."""
        self._sent.append(sent)
        if self._chance.random() < self._faults.duplicates:
            self.counts["duplicated requests"] += 1
            late = self._chance.choice((self._tick // 20, self._tick))
            wait = self.delay() + self._chance.randrange(late)
            self._clock.after(wait, partial(self._arrive, sent, None))
        if self._chance.random() < self._faults.requests:
            self.counts["lost requests"] += 1
            return
        self._clock.after(self.delay(), partial(self._arrive, sent, on_reply))

    def again(self) -> None:
        """Let a batch arrive again: usually one of the last, sometimes one of long ago."""
        if self._sent:
            self.counts["old batches sent again"] += 1
            back = self._chance.choice((1, 2, 3, self._chance.randrange(len(self._sent)) + 1))
            sent = self._sent[-min(back, len(self._sent))]
            self._clock.after(self.delay(), partial(self._arrive, sent, None))

    def _arrive(self, sent: AnySent, on_reply: OnReply | None) -> None:
        reply = self._service.apply(sent)
        if on_reply is None:
            return
        if self._chance.random() < self._faults.replies:
            self.counts["lost replies"] += 1
            return
        self._clock.after(self.delay(), partial(on_reply, reply))
