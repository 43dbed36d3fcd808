"""Health of a namespace: tables of states and findings."""

from dataclasses import replace

import pytest

from acker_redis.doctor import health
from acker_redis.doctor.finding import Finding
from acker_redis.doctor.health import THRESHOLDS
from acker_redis.protocol.commands import COUNTERS, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.reports import Report, SourceEdge
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.status import Status
from tests.doctor.borderline import BORDERLINE, halved
from tests.doctor.made import NOW, TICK_MS, status

MS = NOW * 1000


def of(*shards: ShardStatus) -> Status:
    made = shards or (status(),)
    return Status("orders", made[0].config, made)


def grown(over_ms: int = 10_000, **counts: int) -> Growth:
    return Growth(over_ms, {**dict.fromkeys(COUNTERS, 0), **counts})


def judged(
    id_: str, state: Status, growth: Growth | None = None, oldest_ms: int | None = None
) -> Finding:
    (found,) = [each for each in health.judge(state, growth, oldest_ms) if each.id == id_]
    return found


@pytest.mark.parametrize(
    ("ticked_ms", "tick_ms", "level", "rotation"),
    [
        (MS, TICK_MS, "ok", "on_time"),
        (MS - TICK_MS - 1000, TICK_MS, "ok", "on_time"),
        (MS - TICK_MS - 1001, TICK_MS, "ok", "late"),
        (MS - 2 * TICK_MS, TICK_MS, "ok", "late"),
        (MS - 2 * TICK_MS - 1, TICK_MS, "error", "away"),
        (MS - 5010, 10, "ok", "late"),
        (MS - 5011, 10, "error", "away"),
        (MS + 1000, TICK_MS, "ok", "on_time"),
        (MS + 3_600_000, TICK_MS, "warning", "on_time"),
    ],
)
def test_rotator(ticked_ms: int, tick_ms: int, level: str, rotation: str) -> None:
    shard = status(1, AckerConfig(shards=2, tick_ms=tick_ms), ticked_ms=ticked_ms, ticks=3)
    state = of(status(0, shard.config, ticks=3), shard)
    found = judged("rotator", state)
    assert (found.level, health.rotation(state.shards)) == (level, rotation)
    if level == "error":
        assert "1 of 2 shards (1)" in found.detail
        assert found.headline.startswith("No rotator runs")
        assert "acker-redis rotator orders" in found.fix


def test_before_the_first_tick_no_rotator_is_on_time() -> None:
    for ticks, words in ((0, "no tick yet, the first one is due in 1 min"), (1, "on time")):
        fresh = of(status(0, AckerConfig(tick_ms=60_000), ticks=ticks))
        found = judged("rotator", fresh)
        assert (found.level, found.detail.startswith(words)) == ("ok", True), found.detail
        assert health.rotation(fresh.shards) == ("on_time" if ticks else "unknown")


@pytest.mark.parametrize(
    ("expiring", "since", "level"),
    [(0, 9000, "ok"), (5, 5000, "ok"), (5, 5001, "warning")],
)
def test_drain(expiring: int, since: int, level: str) -> None:
    state = of(status(expiring=expiring, ticked_ms=MS - since))
    assert judged("drain", state).level == level


@pytest.mark.parametrize(
    ("pending", "level"), [(9, "ok"), (10, "warning"), (19, "warning"), (20, "error")]
)
def test_high_water(pending: int, level: str) -> None:
    config = AckerConfig(shards=2, high_water=20)
    shards = (status(0, config), status(1, config, pending=(pending, 0, 0)))
    found = judged("high-water", of(*shards))
    assert found.level == level
    assert "the fullest shard is at" in found.detail


@pytest.mark.parametrize(
    ("pending", "growth", "words"),
    [
        (150, grown(tracked=100, acked=50), "it reaches twice the mark in about 10 s"),
        (150, grown(tracked=50, acked=100), "it falls below the mark in about 10 s"),
        (300, grown(tracked=50, acked=100), "it falls below twice the mark in about 20 s"),
        (300, grown(tracked=100, acked=50), None),
        (150, grown(tracked=50, acked=50), None),
        (150, None, None),
    ],
)
def test_the_time_until_the_high_water_mark_is_estimated(
    pending: int, growth: Growth | None, words: str | None
) -> None:
    state = of(status(0, AckerConfig(high_water=100), pending=(pending, 0, 0)))
    detail = judged("high-water", state, growth).detail
    assert (words or "nacked") in detail
    assert ("at this rate" in detail) == (words is not None)


@pytest.mark.parametrize(
    ("backlog", "level"), [(0, "ok"), (79, "ok"), (80, "warning"), (99, "warning"), (100, "error")]
)
def test_outcomes(backlog: int, level: str) -> None:
    config = AckerConfig(shards=2, tick_ms=TICK_MS, outcomes_limit=200)
    shard = status(1, config, backlog={"shop": backlog, "quiet": 0})
    found = judged("outcomes", of(status(0, config), shard))
    assert found.level == level
    if level != "ok":
        assert f"shop ({backlog}" in found.detail
        assert "shop" in found.headline


@pytest.mark.parametrize(
    ("most", "level"), [(0, "ok"), (799, "ok"), (800, "warning"), (1000, "error")]
)
def test_sources(most: int, level: str) -> None:
    few, many = ({f"pod-{n}": 0 for n in range(number)} for number in (min(most, 3), most))
    found = judged("sources", of(status(0, backlog=few), status(0, backlog=many)))
    assert found.level == level
    assert found.detail.startswith(f"{most:,} source names on the fullest shard")


@pytest.mark.parametrize(
    ("ms", "level"), [(300_000, "ok"), (300_001, "warning"), (34 * 60_000 + 59_999, "warning")]
)
def test_verdict_that_waits_for_long_is_a_warning_however_few_wait(ms: int, level: str) -> None:
    state = of(status(0, AckerConfig(tick_ms=TICK_MS), backlog={"shop": 1, "quiet": 0}))
    (found,) = [
        each
        for each in health.judge(state, untaken={"shop": ms, "quiet": ms, "gone": ms})
        if each.id == "outcomes"
    ]
    assert found.level == level
    if level == "warning":
        assert "for longer than 5 min for 1 source: shop (1, the oldest for" in found.detail
        assert "Source shop has not taken a verdict" in found.headline
    # Where trees live for longer than five minutes, verdicts may wait for as long.
    long = of(status(0, AckerConfig(tick_ms=1_000_000), backlog={"shop": 1}))
    judgement = health.judge(long, untaken={"shop": ms})
    assert {each.level for each in judgement if each.id == "outcomes"} == {"ok"}


@pytest.mark.parametrize(
    ("counts", "level"),
    [
        ({}, "ok"),
        ({"acked": 990, "failed": 10}, "ok"),
        ({"acked": 989, "failed": 10}, "warning"),
        ({"acked": 989, "expired": 4, "overflow": 3, "conflict": 3}, "warning"),
        ({"acked": 91, "failed": 9}, "ok"),
        ({"acked": 91, "failed": 10}, "warning"),
        ({"acked": 90, "failed": 10}, "error"),
        ({"acked": 3170, "failed": 1410}, "error"),
        ({"failed": 9}, "ok"),
        ({"failed": 10}, "error"),
    ],
)
def test_nacks(counts: dict[str, int], level: str) -> None:
    found = judged("nacks", of(status(counters={"acked": 10**6})), grown(**counts))
    assert found.level == level
    for name, count in counts.items() if sum(counts.values()) >= 10 else ():
        assert f"{count:,} {name}" in found.detail


@pytest.mark.parametrize(
    ("target", "level"), [(99.9, "error"), (99, "warning"), (95, "ok"), (50, "ok")]
)
def test_permitted_share_of_nacks_is_a_setting(target: float, level: str) -> None:
    config = AckerConfig(tick_ms=TICK_MS, slo_target=target)
    state = of(status(0, config, counters={"acked": 10**6}))
    assert judged("nacks", state, grown(acked=950, failed=50)).level == level
    everything = judged("nacks", state, grown(failed=50))
    assert everything.level == "error"
    assert f"permits {100 - target:g} % nacks" in everything.detail


@pytest.mark.parametrize(
    ("counters", "level", "words"),
    [
        ({}, "ok", "none nacked; 0 acked"),
        # One reading is enough to see that nothing works.
        ({"expired": 9000}, "error", "Nothing was ever acked"),
        ({"expired": 1}, "warning", "Nothing was ever acked"),
        ({"failed": 10}, "error", "Nothing was ever acked"),
        ({"failed": 9}, "ok", "9 failed; 0 acked"),
        ({"acked": 5, "expired": 9000}, "warning", "100% of all trees that ever ended were nacked"),
        ({"acked": 900, "expired": 100}, "warning", "10% of all trees"),
        # An incident of last month is over.
        ({"acked": 901, "expired": 99}, "ok", "99 expired; 901 acked"),
        ({"acked": 1, "failed": 9}, "ok", "9 failed; 1 acked"),
    ],
)
def test_first_reading_judges_the_counters_since_the_creation(
    counters: dict[str, int], level: str, words: str
) -> None:
    state = of(status(counters=counters))
    for growth in (None, grown(acked=9)):
        found = judged("nacks", state, growth)
        assert found.level == level
        assert words in (found.headline or found.detail)
    if "acked" in counters:
        assert judged("nacks", state, grown(acked=10)).level == "ok"


@pytest.mark.parametrize(
    ("pending", "growth", "level"),
    [
        ((0, 0, 1), grown(45_000), "warning"),
        ((0, 0, 1), grown(44_999), "ok"),
        ((0, 0, 1), grown(45_000, acked=1), "ok"),
        # Trees in the first half of their lifetime are no warning.
        ((1, 1, 0), grown(45_000), "ok"),
    ],
)
def test_acks(pending: tuple[int, ...], growth: Growth, level: str) -> None:
    assert judged("acks", of(status(pending=pending)), growth).level == level
    reshard = of(status(pending=pending, reshard=Reshard(1, 2)))
    assert judged("acks", reshard, growth).level == "ok"


@pytest.mark.parametrize("counter", ["overflow", "conflict", "orphaned"])
def test_counters(counter: str) -> None:
    state = of(status(counters={counter: 9}))
    assert judged("counters", state, grown()).level == "ok"
    found = judged("counters", state, grown(**{counter: 2}))
    assert found.level == "warning"
    assert f"{counter} +2 (in all" in found.detail
    assert ";" not in found.fix, "one counter grew, so there is one fix"


@pytest.mark.parametrize(
    ("acked", "nacked", "level"),
    [(981, 19, "warning"), (990, 10, "ok"), (100, 9, "ok"), (0, 50, "warning"), (0, 0, "ok")],
)
@pytest.mark.parametrize("growth", [None, grown(60_000, acked=100), grown(60_000)])
def test_nacks_of_the_last_quarter_of_an_hour(
    growth: Growth | None, acked: int, nacked: int, level: str
) -> None:
    """A few nacks a minute are too many, if they go on, and those of an incident stay a while."""
    state = of(status(counters={"acked": 10**6, "failed": 1000}))
    recent = Growth(912_000, {**grown().counts, "acked": acked, "failed": nacked})
    (found,) = (each for each in health.judge(state, growth, recent=recent) if each.id == "nacks")
    assert found.level == level
    if level == "warning":
        assert "of the trees that ended in the last 15 min were nacked" in found.headline


def test_late_rows_of_failed_trees_are_no_finding() -> None:
    state = of(status(counters={"orphaned": 9, "failed": 9}, after_failure=7))
    explained = replace(grown(orphaned=2), after_failure=2)
    assert judged("counters", state, explained).level == "ok"
    found = judged("counters", state, replace(explained, after_failure=1))
    assert found.level == "warning"
    assert "orphaned +1 (in all: overflow 0, conflict 0, orphaned 9, 7 of them" in found.detail


@pytest.mark.parametrize(
    ("age_ms", "tick_ms", "level"),
    [
        (3_600_000, TICK_MS, "ok"),
        (3_600_001, TICK_MS, "warning"),
        (4 * 3_600_000, 3_600_000, "ok"),  # trees live for three hours, and a tick longer
        (4 * 3_600_000 + 1, 3_600_000, "warning"),
    ],
)
def test_oldest(age_ms: int, tick_ms: int, level: str) -> None:
    state = of(status(0, AckerConfig(tick_ms=tick_ms)))
    assert judged("oldest", state, oldest_ms=age_ms).level == level


def test_rows_may_keep_a_tree_alive_up_to_its_deadline() -> None:
    day = 86_400_000
    config = AckerConfig(tick_ms=TICK_MS, refresh="update", deadline_ms=day)
    state = of(status(0, config))
    assert judged("oldest", state, oldest_ms=day + 2 * TICK_MS).level == "ok"
    late = judged("oldest", state, oldest_ms=day + 2 * TICK_MS + 1)
    assert late.level == "warning"
    assert "a tree lives up to 24 h:" in late.detail


def test_a_reshard_is_a_warning() -> None:
    found = judged("reshard", of(status(pending=(3, 0, 0), reshard=Reshard(1, 8))))
    assert found.level == "warning"
    assert found.headline == "Resharding to 8 shards: no new tree is tracked until it ends"
    assert "the verdicts of 3 pending trees" in found.detail
    assert found.fix.endswith("acker-redis reshard orders --cancel")


LIFE = 3 * TICK_MS


def told(*edges: SourceEdge, age_ms: int = 0) -> ShardStatus:
    return replace(status(), reports={"shop": Report(age_ms, edges)})


@pytest.mark.parametrize(
    ("opened", "pending", "growth", "recent", "level"),
    [
        (5, (0, 0, 5), grown(LIFE + 15_000), None, "error"),
        (5, (0, 0, 5), None, grown(900_000), "error"),
        (5, (5, 0, 0), None, grown(900_000, expired=1), "error"),
        (5, (5, 0, 0), grown(44_999), grown(900_000), "ok"),  # it was idle until now
        (0, (0, 0, 5), grown(50_000, acked=1), grown(900_000, expired=9), "ok"),
        (5, (0, 0, 5), grown(50_000, acked=1), grown(900_000, acked=1), "ok"),
    ],
)
def test_whole_lifetime_without_an_ack(
    opened: int, pending: tuple[int, ...], growth: Growth | None, recent: Growth | None, level: str
) -> None:
    state = of(status(0, pending=pending, counters={"tracked": opened + 9, "acked": 9}))
    (found,) = (
        each
        for each in health.judge(state, growth, recent=recent, stands=["paint"])
        if each.id == "acks"
    )
    assert found.level == level
    if level == "error":
        assert found.headline == "Nothing was acked for a whole lifetime on edge paint"


@pytest.mark.parametrize(
    ("counts", "level", "share"),
    [
        ({"acked": 900, "expired": 50, "orphaned": 60}, "warning", "6%"),
        ({"acked": 10, "expired": 50, "orphaned": 90}, "error", "90%"),
        ({"acked": 10, "failed": 80, "expired": 50, "orphaned": 9}, "ok", "9%"),
        ({"acked": 960, "expired": 50, "orphaned": 40}, "ok", "4%"),
        ({"acked": 10, "expired": 0, "orphaned": 90}, "ok", "90%"),
        ({"acked": 10}, "ok", "0%"),
    ],
)
def test_congestion(counts: dict[str, int], level: str, share: str) -> None:
    found = judged("congestion", of(), replace(grown(**counts), odd={"": 70, "cut": 5, "pack": 9}))
    assert (found.level, f"{share} of the work was useless" in found.detail) == (level, True)
    if level != "ok":
        assert found.headline.endswith("expired on edge pack")
        assert "skip_ended" in found.fix


@pytest.mark.parametrize(
    ("growth", "level"),
    [
        (None, "error"),
        (grown(TICK_MS - 1, acked=5), "error"),
        (grown(TICK_MS, acked=500, orphaned=1), "error"),
        (grown(TICK_MS, acked=5), "ok"),  # the outage is over
    ],
)
def test_congestion_is_that_of_the_history_if_there_is_one(
    growth: Growth | None, level: str
) -> None:
    lately = Growth(900_000, {**grown(acked=10, expired=50).counts, "orphaned": 30})
    (found,) = (
        each for each in health.judge(of(), growth, recent=lately) if each.id == "congestion"
    )
    assert (found.level, found.detail.split(",")[0]) == (level, "in the last 15 min")


def test_late_rows_of_failed_trees_are_no_congestion() -> None:
    growth = replace(grown(acked=10, expired=50, orphaned=90), after_failure=85)
    assert judged("congestion", of(), growth).level == "ok"


def test_window_that_has_collapsed() -> None:
    good, bad = (SourceEdge(edge, 1, 1, 9, down) for edge, down in (("a", None), ("b", 120.0)))
    assert judged("window", of(told(good))).level == "ok"
    found = judged("window", of(told(good, bad, age_ms=1000)))
    assert (found.level, found.headline) == (
        "warning",
        "Source shop has got no answer on edge b for 2 min 1 s",
    )
    assert "9 waiting" in found.detail


def test_shards_with_different_numbers_of_buckets_are_judged() -> None:
    """An interrupted change leaves such shards; the doctor reports them and continues."""
    more = status(1, AckerConfig(buckets=4, tick_ms=TICK_MS), pending=(0, 0, 1, 2))
    state = of(status(0, pending=(5, 0, 0)), more)
    assert judged("acks", state, grown(50_000)).level == "warning"
    assert state.pending_by_bucket == (5, 0, 1, 2)


def test_checks_without_their_inputs_are_left_out() -> None:
    ids = [finding.id for finding in health.judge(of())]
    assert ids == ["rotator", "drain", "high-water", "outcomes", "sources", "nacks"]


def test_errors_come_first_and_every_one_has_a_headline() -> None:
    state = of(status(0, AckerConfig(high_water=1), pending=(1, 0, 5), reshard=Reshard(1, 2)))
    found = health.wrong(health.judge(state, grown(50_000, failed=10), 10**9))
    assert [each.id for each in found] == ["high-water", "nacks", "oldest", "reshard"]
    assert all(each.headline and each.fix for each in found)
    assert health.wrong(health.judge(of(), grown(), 0)) == ()


@pytest.mark.parametrize("name", THRESHOLDS.__slots__)
def test_every_threshold_has_an_effect(name: str) -> None:
    """With the threshold halved, the healthy namespace gets a finding."""
    case = BORDERLINE[name]
    known = case.after, case.growth, case.oldest_ms
    lax, strict = (
        {each.id for each in health.wrong(health.judge(*known, limits, case.untaken))}
        for limits in (THRESHOLDS, halved(name))
    )
    assert (lax, strict) == (set(), {case.finding})
