"""Trees in blocks and loose trees in random histories: no false ack, and no needless nack.

The state machine is in ``histories.py``, the check of verdicts in ``truth.py``.
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
    "a row before its track",
    "a row after the end",
    "a row while its tree expires",
    "block rows before its track",
    "block rows after its end",
    "block rows while it expires",
    "a slot that the block does not have",
    "a row of an absent slot",
    "a failure of an absent slot",
    "a block with absent slots acked: completed",
    "a block with absent slots acked: expired",
    "a block with absent slots rejected: conflict",
    "a block with absent slots rejected: overflow",
    "tracked again with a hole absent",
    "tracked again with a tree absent",
    "a slot failed again",
    "failed without a delta",
    "touched without a delta",
    "replayed in a block",
    "replayed loose",
    "a block tracked again",
    "a failure with a block tracked again",
    "blocks: other content",
    "a block rejected: conflict",
    "a block rejected: overflow",
    "a tree rejected: overflow",
    "a block number was reused",
    "loose rows: a repeat",
    "blocks: a repeat",
    "blocks: a repeat without fence",
    "a row of a block applied twice",
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
    "a tree expired: idle",
    "a tree expired: deadline",
    "a tree expired with one message missing",
    "a block acked except its failed trees",
    "a block of failed trees ended without an entry",
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
