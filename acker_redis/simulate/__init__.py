"""A simulator: seeded histories of an acker under faults, before an oracle that knows no XOR.

One seed is one history, byte for byte: a virtual clock, one stream of chance, no threads.
Sources track random tuple trees, bolts process their messages, rotators tick, and a network
loses, repeats, delays and reorders. It may import ``reference``, ``embedded``, ``sync`` and the
wings below. Begin with ``world.py`` (a history), ``actors.py`` (who acts) and ``ledger.py`` (the
oracle). Producers keep the rules of ``flows/apply.py``, and the three
rules of ``lua/README.md`` unless one is broken on purpose.

In every fourth history all trees are loose, in every fourth all stand in blocks, in the others a
share of each source's. A source collects some trees, tracks them as one block, and emits when it
was answered; some do not wait. Bolts know nothing of it: what they have to say of loose trees goes
by ``apply``, of blocks by ``apply_blocks``, on one lane, in parts with consecutive numbers.

What is checked, at every call unless said otherwise:

1. *No false ack.* When a tree is acked, each of its messages that exists was processed by a row
   applied to this very record, and no bolt has failed it. **No fault relaxes this.** It follows
   from whole rows: the checksum is zero only if each row of the tree is in it an odd number of
   times, so losing, repeating or reordering rows can keep a tree from zero, and never bring it
   there. (With ``redelivery``, a message that one bolt failed and another processed counts as
   processed if the row that failed it was dropped, lost or set back.)
2. *No needless doubt.* A tree whose messages were all processed, each once, in one record, is
   acked by the row that completes it; one that failed is nacked at once.
3. *One verdict per TRACK that was applied and begins a tree*, and none for a tree that is not
   there. A TRACK that meets its own tree ends both with one ``conflict``.
4. *Expiry to the tick*: a record is drained by the N-th tick after it was last put into the
   newest bucket, never earlier or later; ticks happen when they are due by the server's clock.
5. *Fences*: a batch is applied again only if N ticks came since its lane was last applied, or a
   failover took its fence away; other content under its number is refused, nothing applied.
6. *Books*: replies, counters and trees agree; tracked = acked + failed + expired + overflow +
   conflict + pending trees. Sources take exactly what they were told.
7. At the end: N+1 ticks later nothing is pending, and a source has heard one verdict of each
   tree that was tracked.

A block is a set of trees, and all of this holds tree by tree. What differs:

- A row is dropped, and counted as orphaned, if its block is not tracked, or has no such slot: so a
  source that does not wait has trees that only expire, which is no needless doubt, and early rows
  are never a false ack. (A loose tree keeps such rows.)
- In 2, a tree is told when its block ends: when all its trees are done, those included that have
  failed, or when it expires. Then what is done is acked, also if messages were processed three
  times (each row is in the checksum an odd number of times), and all else is nacked. One that
  fails is nacked at once, and once.
- In 3, a TRACK of the block that is there adds nothing; with other trees it is refused, and nothing
  applied. While the last life still expires it is nacked with ``conflict``, tree by tree. So each
  tree has exactly one verdict per life, and one per rejected TRACK.
- In 4, a block is put into the newest bucket as a whole: by its TRACK, by a TOUCH of any tree (a
  FAIL does not move it), and with ``refresh`` by any row. Nothing ticks before blocks are drained.
- In 6, admission counts all trees of a block until it ends. What ends in a call makes room for the
  next one. A rejected block is told, whatever its trees are.

What a fault relaxes, and no more than for the trees concerned:

- ``failover``: the oracle's books are set back with the shard, so 2 to 6 hold in the history that
  is left. A source has heard more than that: in 7, a tree whose TRACK, verdict or taking was in
  the lost tail may have no verdict or more than one.
- ``pause``, ``rerun``, and ``duplicates`` or ``reorder`` with ``clock``: a request may come when
  its fence is gone, or by a lane that has none yet. In 7, a tree has up to as many verdicts as
  TRACKs were applied. The later ones are nacks, unless all its rows came again as well.
- ``rerun``: what a run announces in a row that was refused, set back or drained is no message of
  the tree, for nobody emits it here. A producer that is not deterministic, had emitted it, and
  then lost its fence to a failover or to N ticks, has tracked or processed twice: it broke a rule.
  A block may be tracked again with a tree less: if that comes first, the source hears of it.
- ``overflow``: rows without a tree are dropped, so in 2 such trees need not be acked; they expire.
- ``rotators``, ``clock``: 4 counts ticks, not time: a tick that is late is not caught up.

Not simulated: several shards (a shard is the unit of atomicity, and a tree lives in one), what
``reference/acker.py`` names as not modelled, and sources that lose their own list of open trees.
"""

from acker_redis.simulate.faults import BREAKS, FAULTS, parse
from acker_redis.simulate.run import explain, play, summary, url_of
from acker_redis.simulate.world import Played, World

__all__ = ["BREAKS", "FAULTS", "Played", "World", "explain", "parse", "play", "summary", "url_of"]
