"""Lifetimes and moves of the clock for the state machines of this folder.

All times are in sixteenths of a tick, and deadlines half a sixteenth off. So the real time that
passes on a server never decides in which tick a deadline falls.
"""

from typing import Any

from hypothesis import strategies as st

from acker_redis.protocol.config import AckerConfig

TICK_MS = 3_600_000
SIXTEENTH_MS = TICK_MS // 16

LIFETIMES = st.none() | st.sampled_from([0, 0, 4, 16, 100])
"""None for ``refresh="never"``; else the sixteenths of a tick, after N ticks, to the deadline."""
OBJECTIVES = st.sampled_from([0, 0, 2, 10, 40]).map(
    lambda steps: steps * SIXTEENTH_MS + SIXTEENTH_MS // 2 if steps else 0
)
"""Values of ``slo_ms``."""
EDGES = st.sampled_from([(), ("a",), ("a", "b", "c"), tuple("abcdefgh")])
STEPS = st.sampled_from([-20, -1, 1, 4, 7, 8, 16, 17, 40]).map(lambda step: step * SIXTEENTH_MS)
"""Moves of the clock, in ms; it may also go back."""


def config_of(buckets: int, lifetime: int | None, **fields: Any) -> AckerConfig:
    """Return a configuration with ticks of an hour."""
    if lifetime is not None:
        fields["deadline_ms"] = (16 * buckets + lifetime) * SIXTEENTH_MS + SIXTEENTH_MS // 2
        fields["refresh"] = "update"
    return AckerConfig(buckets=buckets, tick_ms=TICK_MS, **fields)
