"""The oracle: which replies and verdicts a history of calls allows.

It knows a tree as sets of messages and links, and a bucket as the tick that began it. It has no
checksum, and imports nothing of the reference or of a client. A generator of histories reports each
call with the facts about its rows (``facts.py``), its reply, and the verdicts that it wrote::

    oracle = Oracle(config)
    oracle.applied(Call(fence, task, [Row(tree, TRACK, made=(1,), links=...)]), reply, told, now_ms)
    oracle.rotated(ticked, now_ms)
    oracle.expired(told)

Each of these raises :class:`Violation` at the first result that the history does not allow.

| module | contents |
|---|---|
| ``facts.py`` | trees, rows and calls, as the generator knows them |
| ``lifetimes.py``, ``fences.py`` | when a record expires, and what a lane's fence answers |
| ``records.py`` | the sets of one record and of one block |
| ``books.py`` | one shard: records, ticks, counters, verdicts that wait |
| ``trees.py``, ``blocks.py`` | the verdicts of a call: of loose trees, of blocks |
| ``diagnosis.py`` | cause, edges and residual of an expired tree |
"""

from proof.oracle.blocks import Oracle
from proof.oracle.facts import (
    FAIL,
    TOUCH,
    TRACK,
    BlockKey,
    BlockRows,
    Call,
    Link,
    Part,
    Reply,
    Row,
    Told,
    Tree,
)
from proof.oracle.violations import FALSE_ACK, Violation

__all__ = [
    "FAIL",
    "FALSE_ACK",
    "TOUCH",
    "TRACK",
    "BlockKey",
    "BlockRows",
    "Call",
    "Link",
    "Oracle",
    "Part",
    "Reply",
    "Row",
    "Told",
    "Tree",
    "Violation",
]
