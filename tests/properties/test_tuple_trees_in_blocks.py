"""Trees in blocks and loose trees in random histories: no false ack, and no needless nack.

The state machine is in ``histories.py``, the check of verdicts in ``proof/oracle``.
"""

from acker_redis.embedded import EmbeddedRedis
from tests.properties.histories import Histories, reached
from tests.properties.play import play, play_until_met, share
from tests.tiers import examples

INTERESTING = (
    "a message of loose trees and blocks",
    "a message of slots of one block",
    "a message of two blocks",
    "a join over loose trees and blocks",
    "a join over slots of one block",
    "a join over two blocks",
    "a batch of two calls",
    "rows before their track",
    "rows after the end of their tree",
    "rows while their tree expires",
    "rows of blocks before their track",
    "rows of blocks after their end",
    "rows of blocks that expire",
    "rows of slots that are not there",
    "rows of absent slots",
    "failures of absent slots",
    "a block with absent slots acked: completed",
    "a block with absent slots acked: expired",
    "blocks with absent slots rejected, conflict",
    "blocks with absent slots rejected, overflow",
    "tracked again with a hole absent",
    "tracked again with a tree absent",
    "slots failed again",
    "failed without a delta",
    "touched without a delta",
    "replayed in a block",
    "replayed loose",
    "blocks tracked again while pending",
    "failures with a TRACK that came again",
    "blocks: other content",
    "blocks rejected, conflict",
    "blocks rejected, overflow",
    "a loose tree ended: overflow",
    "blocks tracked again after their end",
    "loose rows: a repeat",
    "blocks: a repeat",
    "blocks: a repeat without fence",
    "a late call",
    "loose rows: given up",
    "blocks: given up",
    "loose rows: backlog",
    "blocks: backlog",
    "a touch of a loose tree",
    "a touch of a block",
    "loose trees drained in part",
    "blocks drained in part",
    "blocks drained before loose trees",
    "a loose tree ended: completed",
    "a loose tree ended: failed",
    "a loose tree ended: expired",
    "a block ended: completed",
    "a block ended: expired",
    "a block expired: idle",
    "a block expired: deadline",
    "a loose tree expired: idle",
    "a loose tree expired: deadline",
    "expired with one message missing",
    "a block acked except its failed trees",
    "blocks complete in silence",
    "a block expired, some trees acked and some nacked",
    "and some had failed",
    "a hole acked",
    "a block acked, two trees of two messages",
)


def test_never_a_false_ack_in_blocks(server: EmbeddedRedis) -> None:
    """On Redis and on the reference model at the same time."""
    play(Histories, share(server, examples(0.6)), 50, url=server.url)


def test_never_a_false_ack_in_many_histories_of_blocks() -> None:
    """On the fast reference model alone, until all interesting states were reached."""
    play_until_met(Histories, reached, INTERESTING, 3)
