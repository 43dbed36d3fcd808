"""All reports of health agree: the doctor, /readyz, REST, the overview, the command line and the
alert rules; also if a threshold is changed."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
from rich.console import Console

from acker_api.reading import health as readiness
from acker_api.reading.ages import Ages
from acker_api.reading.canary import Flight
from acker_api.reading.overview import Overview
from acker_api.reading.reader import ReadStatus, Survey
from acker_redis.cli.status_view import draw
from acker_redis.doctor import TITLES, checks_namespace, health
from acker_redis.doctor.facts import Waiting
from acker_redis.doctor.health import THRESHOLDS
from acker_redis.flows.browse import OldestTree
from acker_redis.operate.status import NamespaceStatus
from acker_redis.protocol.tree import TreeState
from tests.doctor.borderline import BORDERLINE, Borderline, halved
from tests.doctor.made import namespace

ROOT = Path(__file__).parents[2]
JUDGED = {
    "rotator",
    "drain",
    "high-water",
    "outcomes",
    "sources",
    "nacks",
    "acks",
    "counters",
    "oldest",
    "congestion",
    "window",
}


def oldest(case: Borderline) -> OldestTree | None:
    if case.oldest_ms is None:
        return None
    tree = TreeState(1, 5, "shop", "order-17", False, "", case.oldest_ms, 0)
    return OldestTree(tree, exact=True)


def by_rest(case: Borderline) -> set[str]:
    shape = NamespaceStatus.of(case.after, oldest(case), case.growth, untaken=case.untaken)
    return {each.id for each in shape.findings}


def by_terminal(case: Borderline) -> set[str]:
    console = Console(width=300)
    with console.capture() as capture:
        shown = draw(case.after, case.growth, oldest(case), "redis://h", None, untaken=case.untaken)
        console.print(shown)
    said = capture.get()
    found = health.judge(case.after, case.growth, case.oldest_ms, untaken=case.untaken)
    return {each.id for each in found if each.headline and each.headline in said}


def by_overview(case: Borderline) -> set[str]:
    async def unread(*_: object) -> NoReturn:
        raise AssertionError("nothing is read")

    overview = Overview(unread, Ages(unread))
    if case.before:
        overview.row("orders", ReadStatus(case.before))
    seen = ReadStatus(case.after, oldest_ms=case.oldest_ms, untaken=case.untaken)
    return {each["id"] for each in overview.row("orders", seen)["findings"]}


def by_doctor(case: Borderline) -> set[str]:
    first = namespace(*(case.before or case.after).shards)
    waiting = tuple(Waiting(name, 0, 3, ms) for name, ms in (case.untaken or {}).items())
    found = checks_namespace.check(first, namespace(*case.after.shards, waiting=waiting), 10.0)
    return {each.id for each in found if each.level != "ok"} & JUDGED


def by_readiness(case: Borderline) -> set[str]:
    survey = Survey({"orders": ReadStatus(case.after)}, None, 0.0)
    ready = readiness.judge(survey, rotation=True, canary=Flight("off")).ready
    return set() if ready else {"rotator"}


WHO = {
    "REST": by_rest,
    "terminal": by_terminal,
    "overview": by_overview,
    "doctor": by_doctor,
    "readyz": by_readiness,
}
ONLY = {"readyz": {"rotator"}, "doctor": JUDGED - {"oldest"}}
"""The findings that they may report; the doctor does not look for the oldest tree."""


@pytest.fixture(params=["as it is", "halved"])
def strict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "halved")


@pytest.fixture(params=BORDERLINE)
def name(request: pytest.FixtureRequest, strict: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    if strict:
        monkeypatch.setattr(health, "THRESHOLDS", halved(request.param))
    return str(request.param)


@pytest.mark.parametrize("who", WHO)
def test_all_reports_agree_at_a_changed_threshold(who: str, name: str, strict: bool) -> None:
    case = BORDERLINE[name]
    expected = {case.finding} & ONLY.get(who, JUDGED) if strict else set()
    assert WHO[who](case) == expected


def test_each_threshold_has_a_borderline_case() -> None:
    assert set(BORDERLINE) == set(THRESHOLDS.__slots__)


def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_alerts", ROOT / "deploy" / "alerts.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses need it
    spec.loader.exec_module(module)
    return module


def test_alert_rules_match_the_thresholds() -> None:
    written = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    assert written == render().text(), "run: python deploy/alerts.py"


@pytest.mark.parametrize("threshold", BORDERLINE)
def test_alert_changes_with_its_threshold(threshold: str) -> None:
    alerts, case = render(), BORDERLINE[threshold]
    old = {each.name: each for each in alerts.alerts()}
    new = {each.name: each for each in alerts.alerts(halved(threshold))}
    changed = {each.finding for name, each in new.items() if each.expr != old[name].expr}
    assert changed == ({case.finding} - set(alerts.NOT_ALERTS))


def test_each_finding_has_an_alert_or_a_reason() -> None:
    alerts = render()
    covered = {each.finding for each in alerts.alerts()} - {""}
    assert covered | set(alerts.NOT_ALERTS) == JUDGED | {"reshard"}
    assert not covered & set(alerts.NOT_ALERTS)
    assert set(TITLES) >= covered


def test_each_figure_of_a_status_says_what_it_is() -> None:
    for name, model in NamespaceStatus.model_fields.items():
        assert model.description or name in ("namespace", "counters", "latency", "config", "shards")


def test_dashboard_reads_only_known_fields() -> None:
    types = (ROOT / "api/acker_api/dashboard/js/data/types.js").read_text()
    schemas = NamespaceStatus.model_json_schema()
    known = {"Status": schemas, **schemas["$defs"]}
    for name in ("Status", "Finding", "Shard"):
        body = types.partition(f"@typedef {{object}} {name}\n")[2].partition("@typedef")[0]
        read = set(re.findall(r"@property \{.*\} \[?(\w+)", body))
        assert read, name
        assert read <= set(known[name]["properties"]), name
