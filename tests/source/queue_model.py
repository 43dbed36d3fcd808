"""A model of sources, one queue and its workers: what a window does in an outage. No Redis.

Discrete events in steps of ``STEP`` seconds. Records arrive at each source at an even rate. What a
source sends goes to the end of one queue, which the workers work off in order, also if the tree of
a message has ended: then the work is *useless*. An answer reaches its source ``delay`` seconds
after the work. A tree expires at the first tick after its lifetime.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from acker_redis.trees.window import Window

STEP = 0.05


@dataclass(slots=True)
class Tree:
    """An attempt at a record."""

    record: "Record"
    tracked_at: float
    probe: bool
    ended: bool = False


@dataclass(slots=True)
class Record:
    """A record, with its attempts that count."""

    source: int
    attempts: int = 0


@dataclass
class Result:
    """The counts of a run."""

    emitted: int = 0
    acked: list[int] = field(default_factory=list)
    """Records acked, by source."""
    dead: int = 0
    worked: int = 0
    """Messages that the workers worked off."""
    useless: int = 0
    normal_after: float | None = None
    """Seconds from the return of the workers until nothing waits any more."""


def run(
    *,
    lifetime: float = 4.0,
    tick: float = 2.0,
    capacity: float = 45.0,
    load: float = 0.7,
    away: float = 0.0,
    before: float = 20.0,
    after: float = 100.0,
    most: float = 1000,
    delay: float = 0.05,
    jitter: float = 0.2,
    sources: int = 1,
    lost: float = 0.0,
    backlog: int = 0,
    seed: int = 0,
    speed: Callable[[float], float] = lambda _: 1.0,
) -> Result:
    """Run workers that are away for ``away`` seconds, after ``before`` seconds of work.

    Args:
        lifetime: Seconds that trees live at least; ``tick`` seconds more at most.
        capacity: Messages that the workers process a second; ``speed(now)`` is a factor of it.
        load: Records that arrive, as a part of the capacity.
        after: Seconds to watch after their return.
        most: Largest window; infinity: none.
        backlog: Records that wait when the sources start, in all.
        lost: The part of messages that are lost before their work is done.
        delay: Seconds from the work to the source; at random by up to ``jitter`` of it.

    """
    draw, number = random.Random(seed), itertools.count()
    windows = [Window(most, lifetime) for _ in range(sources)]
    new, due = ([deque[Record]() for _ in windows] for _ in range(2))
    later: list[list[tuple[float, int, Record]]] = [[] for _ in windows]
    queue, answers, ends = deque[Tree](), list[tuple[float, int, Tree]](), deque[Tree]()
    rate, owed, credit = capacity * load / sources, [draw.random() for _ in windows], 0.0
    for each in range(backlog):
        new[each % sources].append(Record(each % sources))
    found, now, back = Result(acked=[0] * sources), 0.0, before + away

    def end(tree: Tree) -> bool:
        was, tree.ended = tree.ended, True
        return not was

    while now < back + after:
        while answers and answers[0][0] <= now:
            tree = heapq.heappop(answers)[2]
            if end(tree):
                windows[tree.record.source].answered(now, now - tree.tracked_at)
                found.acked[tree.record.source] += 1
        while ends and (ends[0].tracked_at + lifetime) // tick * tick + tick <= now:
            tree, record = ends[0], ends.popleft().record
            if not end(tree):
                continue
            windows[record.source].expired(now)
            record.attempts -= tree.probe
            if record.attempts >= 5:
                found.dead += 1
            else:
                wait = 2.0 ** max(record.attempts - 1, 0) * draw.uniform(0.5, 1)
                heapq.heappush(later[record.source], (now + wait, next(number), record))
        for each in draw.sample(range(sources), sources):
            window, owed[each] = windows[each], owed[each] + rate * STEP
            while owed[each] >= 1:
                owed[each] -= 1
                new[each].append(Record(each))
                found.emitted += 1
            while later[each] and later[each][0][0] <= now:
                due[each].append(heapq.heappop(later[each])[2])
            room = window.room(now)
            while room >= 1 and (due[each] or new[each]):
                first = due if due[each] and (window.down_since is None or not new[each]) else new
                record = first[each].popleft()
                record.attempts += 1
                tree = Tree(record, now, window.down_since is not None)
                window.sent(now)
                queue.append(tree)
                ends.append(tree)
                room -= 1
            if due[each] or new[each]:
                window.waits()
        credit += 0 if before <= now < back else capacity * speed(now) * STEP
        while credit >= 1 and queue:
            credit -= 1
            tree = queue.popleft()
            found.worked += 1
            found.useless += tree.ended
            if not tree.ended and draw.random() >= lost:
                at = now + delay * draw.uniform(1 - jitter, 1 + jitter)
                heapq.heappush(answers, (at, next(number), tree))
        credit = credit if queue else min(credit, 0.999)
        waiting = sum(map(len, [*new, *due, *later])) + sum(each.in_flight for each in windows)
        usual = rate * sources * (delay * (1 + jitter) + 0.3) + 3 * sources
        if now >= back and found.normal_after is None and waiting <= usual:
            found.normal_after = now - back
        now = round(now + STEP, 6)
    return found
