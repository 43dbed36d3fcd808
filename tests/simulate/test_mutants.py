"""The simulator detects each of these bugs in the reference, one at a time."""

import pytest

from tests.simulate.mutants import LOOSE, found_by, mutate, replace_once, without_books

ZERO = "(record.why is not None or record.checksum == 0)"
BUCKETS = "self.buckets: deque[dict[int, Record]] = deque({} for _ in range(n))"
NEWEST = "newest = max(0, config.buckets - max(1, ticks))"
STAYS = "and not (record.capped and to == age)"
TRACKS = "tracks = any(row.flags & TRACK for row in rows)"
MUTANTS = {
    "fences are forgotten": ("if fence.seq > seq:", "if True:"),
    "an equal number is applied again": (
        "if fence.seq > seq:",
        "if fence.seq > seq or (fence.seq == seq and fence.digest == digest):",
    ),
    "fences end a tick early": (
        "self.fences: deque[dict[str, tuple[int, str]]] = deque({} for _ in range(n))",
        "self.fences: deque[dict[str, tuple[int, str]]] = deque({} for _ in range(n - 1))",
    ),
    "other content is accepted": ("fence.digest != digest", "False"),
    "a refused batch leaves its fence": (
        TRACKS,
        f"{TRACKS}\n        fence and self._remember(fence)",
    ),
    "only the low half is checked": (ZERO, ZERO.replace("checksum ==", "checksum % 2**32 ==")),
    "only the high half is checked": (ZERO, ZERO.replace("checksum ==", "checksum >> 32 ==")),
    "deltas are combined by or": ("record.checksum ^= row.delta", "record.checksum |= row.delta"),
    "early rows are applied partially": (
        "record.checksum ^= row.delta",
        "record.checksum ^= row.delta if age is not None or row.flags else row.delta & 0xFFFF",
    ),
    "a zero checksum beats a failure": (
        "        if record.why is not None:",
        "        if record.why is not None and record.checksum != 0:",
    ),
    "fails are ignored": ("if row.flags & FAIL:", "if False:"),
    "expiring trees are dropped without a drain": (
        "self.expiring = self.buckets.pop()",
        "self.buckets.pop()",
    ),
    "expiry writes no verdict": ('self._tell("nack", "expired", anchor, record)', "pass"),
    "trees expire a tick early": (BUCKETS, BUCKETS.replace("range(n)", "range(n - 1)")),
    "trees expire a tick late": (BUCKETS, BUCKETS.replace("range(n)", "range(n + 1)")),
    "ticks are early": ("late < self.config.tick_ms", "late < self.config.tick_ms // 2"),
    "late ticks are caught up": (
        "self.ticked_ms = self.now_ms  # a late tick is not caught up",
        "self.ticked_ms += self.config.tick_ms",
    ),
    "a clock that was set back stops the ticks": (
        "self.ticked_ms = self.now_ms  # the clock went back",
        "pass",
    ),
    "expiring trees still accept rows": (
        "else Record(self.now_ms)",
        "else self.expiring.get(row.anchor) or Record(self.now_ms)",
    ),
    "touch does not reset the timeout": ("row.flags & (TOUCH | FAIL)", "row.flags & FAIL"),
    "every row resets the timeout": ('self.config.refresh == "update"', "True"),
    "a complete tree stays pending": (
        "self._end(row.anchor, record)\n            self._forget(row.anchor)",
        "self._end(row.anchor, record)",
    ),
    "a conflict writes no verdict": ('self._tell("nack", "conflict", row.anchor, record)', "pass"),
    "overflow writes no verdict": ('self._tell("nack", "overflow", row.anchor, record)', "pass"),
    "rows without a tree are never dropped": (
        "self.reshard or self.pending >= self.high_water",
        "False",
    ),
    "the backlog has no limit": (TRACKS, "tracks = False"),
    "a verdict is lost": ("waiting.extend(entry)", "waiting.extend(entry[:1])"),
    "a deadline moves trees to a newer bucket than it allows": (
        NEWEST,
        "newest = max(0, config.buckets - 1 - max(1, ticks))",
    ),
    "a deadline ends trees a tick early": (
        NEWEST,
        "newest = min(config.buckets - 1, max(0, config.buckets + 1 - max(1, ticks)))",
    ),
    "a deadline is rounded down": (
        "ticks = 1 - (-left // config.tick_ms)  # rounded up",
        "ticks = 1 + left // config.tick_ms",
    ),
    "a deadline counts from the last row": (
        "self._moved_to(age, record.first_ms)",
        "self._moved_to(age, self.now_ms)",
    ),
    "a deadline is ignored": ("if not config.deadline_ms:", "if True:"),
    "a deadline moves trees to an older bucket": ("return min(age, newest)", "return newest"),
    "a deadline counts a late tick as on time": (
        "max(self.ticked_ms + config.tick_ms, self.now_ms)",
        "self.ticked_ms + config.tick_ms",
    ),
    "a touch that restarts no clock writes a verdict": (STAYS, ""),
    "a touch near a deadline writes no verdict": (STAYS, "and not record.capped"),
    "a deadline is never the cause": ('"deadline" if record.capped else "idle"', '"idle"'),
    "a deadline is always the cause": (
        '"deadline" if record.capped else "idle"',
        '"deadline" if self.config.deadline_ms else "idle"',
    ),
    "a residual has no code": (
        "residual=record.checksum",
        "residual=record.checksum & (1 << EDGE_BIT) - 1",
    ),
    "a residual has no low half": ("residual=record.checksum", "residual=record.checksum >> 32"),
    "codes are read by another configuration": (
        "edges=odd_edges(self.config.edges, record.checksum)",
        "edges=odd_edges(self.config.edges[::-1], record.checksum)",
    ),
    "codes are read one bit too high": (
        "edges=odd_edges(self.config.edges, record.checksum)",
        "edges=odd_edges(self.config.edges, record.checksum >> 1)",
    ),
    "the counter of an edge is that of the next": (
        "if residual >> EDGE_BIT + e & 1]",
        "if residual >> EDGE_BIT + e + 1 & 1]",
    ),
    "a tree has another source id": ("record.source_id, age, why)", '"s1", age, why)'),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name != "the counter of an edge is that of the next":
        without_books(monkeypatch)
    mutant = mutate(monkeypatch, loose=replace_once(LOOSE, *MUTANTS[name]))
    assert found_by(mutant) is not None
