"""A simulator: seeded histories of an acker under faults, checked by an oracle without XOR.

A seed determines a history byte for byte: a virtual clock, one random stream, no threads. Sources
track random tuple trees, bolts process their messages, rotators tick, and a network loses,
duplicates, delays and reorders requests. It may import ``proof.reference``, and of the package
``embedded``, ``sync`` and the wings below them. Begin with ``world.py`` (a history), ``actors.py``
(sources, bolts and rotators) and ``proof/oracle/`` (the oracle); ``proof/run.py`` plays histories
on the reference, on a server, a cluster or fakeredis. Producers follow the rules of
``flows/apply.py``, and the three rules of ``lua/README.md`` unless a history breaks one of them on
purpose.

In every fourth history all trees are loose. In every fourth all trees are in blocks. In the others
a share of the trees of each source is in blocks. A source collects some trees, tracks them as one
block, and emits when the TRACK was answered; some sources do not wait. In half of the blocks some
slots are absent: they hold no tree. Bolts do not know about blocks. A bolt sends its rows for loose
trees with ``apply``, and those for blocks with ``apply_blocks``, on one lane, in parts with
consecutive numbers. Some bolts share the lane of a source, so that a TRACK has rows, failures and
touches folded in.

A history runs on one shard or on several, which must do the same: the reference, a real server.

The oracle checks these invariants, at every call unless a line says otherwise:

1. *No false ack.* When a tree is acked, each of its messages that exists was processed by a row
   applied to this very record, and no bolt has failed the tree. **No fault relaxes this.** It
   follows from whole rows: the checksum is zero only if each row of the tree is in it an odd number
   of times. Lost, repeated or reordered rows can therefore keep a checksum from zero, but cannot
   make it zero. (With ``redelivery``, a message that one bolt failed and another processed counts
   as processed if the row that failed it was dropped, lost or rolled back.)
2. *No needless nack.* If every message of a tree was processed, each once, in one record, the row
   that completes the tree acks it. A failed tree is nacked at once.
3. *One verdict per TRACK that was applied and begins a tree*, and no verdict for a tree that does
   not exist. A TRACK of a tree that is already pending ends both with one ``conflict``.
4. *Expiry to the tick*: a record is drained by the N-th tick after the one that began its bucket,
   never earlier or later; ticks happen when they are due by the server's clock. A record begins in
   the newest bucket. A row that moves it moves it to the newest bucket, or, with a deadline, to the
   newest one that ends it in time (``deadline.py``). If the deadline leaves a record where it is, a
   TOUCH gets no verdict.
5. *Fences*: a batch is applied twice only if N ticks came since its lane was last applied, or a
   failover lost its fence. Other content under the same number is refused, and nothing is applied.
6. *Books*: replies, counters and trees agree; tracked = acked + failed + expired + overflow +
   conflict + pending trees. Sources take exactly the verdicts that were written for them. On a
   server, at every tick and drain, only blocks that have not ended have keys.
7. At the end: N+1 ticks later nothing is pending, and each source has received one verdict for each
   tree that was tracked.
8. *Diagnosis* of each tree that expires (``diagnosis.py``). The cause is ``deadline`` if a deadline
   kept its last move out of the newest bucket, otherwise ``idle``. The edges are those with an odd
   number of messages unaccounted for, and no others. If one message is unaccounted for, the
   residual is its id. A message is unaccounted for if it was announced and not processed by a row
   of this record, or processed and not announced. A message of several causes may be announced in
   part: then the row of its least cause in this tree decides whether its edge is named. Lost and
   repeated rows do not relax this: the oracle knows which rows each record received, and how often.

Half of the histories have 1 to 8 edges, and each message is on one of them or on none. With
``refresh`` there is a deadline, of N ticks and up to four more, in sixteenths of a tick.

A block is a set of trees, and all of this holds for each tree. The differences are:

- A row is dropped, and counted as orphaned, if its block is not tracked or has no such slot. So a
  source that does not wait has trees that can only expire, which is not a needless nack, and early
  rows never cause a false ack. (A loose tree keeps such rows.)
- An absent slot has no verdict; an ack of one is a false ack. A failure of an absent slot is
  dropped, and counted as orphaned. The messages that it receives count, so its block only expires.
- In 2, the verdict of a tree is written when its block ends: when all its trees are complete, the
  failed ones included, or when the block expires. A block that expires acks its complete trees,
  even if messages were processed three times (each row is in the checksum an odd number of times),
  and nacks all others. A failed tree is nacked at once, and only once.
- In 3, a TRACK of a pending block is a no-op; with other trees it is refused, and nothing is
  applied. While the last life of the block still expires, the TRACK is nacked with ``conflict``,
  tree by tree. So each tree has exactly one verdict per life, and one per rejected TRACK.
- In 4, a block is put into the newest bucket as a whole: by its TRACK, by a TOUCH of any tree (a
  FAIL does not move it), and with ``refresh`` by any row. No tick happens before the blocks that
  expire are drained.
- In 6, admission counts all slots of a block until the block ends, and the books count trees. A
  block that ends in a call makes room for the next call. A rejected block always gets its verdict,
  regardless of its trees.

A fault relaxes the following, and only for the trees concerned:

- ``failover``: the shard returns to one of its last states, also to one that an earlier failover
  has discarded, and producers may send batches of long ago again. The oracle's books are rolled
  back with the shard, so 2 to 6 hold in the remaining history. A source has received verdicts that
  this history lacks: in 7, a tree whose TRACK, verdict or taking was in the lost tail may have no
  verdict, or more than one.
- ``pause``, ``rerun``, and ``duplicates`` or ``reorder`` with ``clock``: a request may come after
  its fence was deleted, or by a lane that has no fence yet. In 7, a tree has at most as many
  verdicts as TRACKs were applied. The later verdicts are nacks, unless all its rows came again too.
- ``rerun``: a run may announce a message in a row that was refused, rolled back or drained. That is
  no message of the tree, because no source or bolt emits it here. A producer that is not
  deterministic, had emitted it, and then lost its fence to a failover or to N ticks, has tracked or
  processed twice: it broke a rule. A block may be tracked again without its last slot, with one
  more absent slot, with another label, with a failure or with a touch; if that request is the first
  to arrive, the source is notified. A row may name a slot that holds no tree.
- ``losses``: a block has lost a key: its checksums, or the bitmap of its failed or of its present
  slots. Until it expires, every call that names the block is refused with ``SchemaError``, and its
  producer gives the batch up. When the block expires, it acks no tree: it nacks all trees that are
  not known to have failed, with residual 0. So in 2 its trees need not be acked, and in 3 a tree
  that had failed gets a second nack if the failures are lost. If the present slots are lost, each
  absent slot gets a nack. In 6 ``surplus`` counts these, as the counters no longer add up.
- ``overflow``: rows without a tree are dropped, so in 2 such trees need not be acked; they expire.
- ``rotators``, ``clock``: 4 counts ticks, not time: a late tick is not caught up. A rotator that
  dies in a drain has drained a part. A server chooses that part, so with this fault a seed may have
  another history on a server than on the reference.

Not simulated: the loss of other keys than those of a block (buckets, fences, streams, ``meta``),
several shards (a shard is the unit of atomicity, and a tree is in one shard), the limits that
``proof/reference/acker.py`` lists as not modelled, and sources that lose their own list of open
trees.
"""

from proof.simulate.faults import BREAKS, FAULTS, parse
from proof.simulate.world import Played, World

__all__ = ["BREAKS", "FAULTS", "Played", "World", "parse"]
