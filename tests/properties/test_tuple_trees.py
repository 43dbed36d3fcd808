"""Loose trees in random histories: Redis agrees with the reference, and no ack is false.

The state machine is in ``histories.py``, the check of verdicts in ``proof/oracle``.
"""

from acker_redis.embedded import EmbeddedRedis
from tests.properties.histories import Histories, reached
from tests.properties.play import play, play_until_met, share
from tests.tiers import examples

INTERESTING = (
    "a message of several trees",
    "a join in one tree",
    "a join of trees",
    "a late call",
    "loose rows: a repeat",
    "loose rows: given up",
    "loose rows: backlog",
    "rows before their track",
    "rows while their tree expires",
    "rows after the end of their tree",
    "replayed loose",
    "a touch of a loose tree",
    "loose trees drained in part",
    "a loose tree ended: completed",
    "a loose tree ended: failed",
    "a loose tree ended: expired",
    "a loose tree ended: overflow",
    "a loose tree expired: deadline",
    "expired with one message missing",
    "complete but nacked: rows were lost",
    "a loose tree of four messages acked",
)


class Loose(Histories):
    """Histories without blocks."""

    blocks = False


def test_never_a_false_ack(server: EmbeddedRedis) -> None:
    """On Redis and on the reference model at the same time."""
    play(Loose, share(server, examples(0.6)), 50, url=server.url)


def test_never_a_false_ack_in_many_histories() -> None:
    """On the fast reference model alone, until all interesting states were reached."""
    play_until_met(Loose, reached, INTERESTING, 5)
