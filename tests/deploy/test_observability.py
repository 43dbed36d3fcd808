"""Queries of the dashboard and the alerts use existing metrics; promtool checks the alerts."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import missing
from tests.deploy.compose import ROOT, load
from tests.deploy.metrics import METRICS, OF_ALERTS, OF_PROMETHEUS

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads(
    (DEPLOY / "grafana" / "dashboards" / "acker-redis.json").read_text()
)
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
KNOWN = METRICS | OF_ALERTS | OF_PROMETHEUS
WORDS = {"by", "without", "on", "ignoring", "and", "or", "unless", "bool", "offset", "group_left"}


def questions() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each PromQL expression."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


def names(expression: str) -> set[str]:
    """Return the metrics of an expression; check its brackets and its labels."""
    plain = re.sub(r'"[^"]*"', '""', expression)
    opened = []
    for sign in plain:
        if sign in "([{":
            opened.append(sign)
        elif sign in ")]}":
            assert opened, expression
            assert opened.pop() + sign in ("()", "[]", "{}"), expression
    assert not opened, expression
    found = set()
    for name, labels in re.findall(r"([a-z_:][a-z0-9_:]*)\{([^}]*)\}", plain):
        assert set(re.findall(r"(\w+) *=", labels)) <= set(KNOWN[name]), expression
    groups = re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", plain)
    plain = re.sub(r"\b(?:by|on|without|ignoring) \([^)]*\)", " ", plain)
    plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", plain)
    for name, called in re.findall(r"([a-zA-Z_:][\w:]*)(\s*\()?", plain):
        if not called and name not in WORDS:
            found.add(name)
    for group in groups:
        for name in found:
            assert {label.strip() for label in group.split(",")} <= set(KNOWN[name]), expression
    return found


@pytest.mark.parametrize(("where", "expression"), list(questions()))
def test_every_query_uses_known_metrics(where: str, expression: str) -> None:
    found = names(expression)
    assert found, where
    assert found <= set(KNOWN), where


def test_an_invalid_query_is_detected() -> None:
    for wrong in ("rate(acker_up[5m)", "sum(acker_up", 'acker_up{source="x"}'):
        with pytest.raises(AssertionError):
            names(wrong)
    with pytest.raises(AssertionError):
        names("sum by (source) (acker_up)")
    assert names("acker_upp > 1") == {"acker_upp"}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for name in names(target["expr"])
    }
    assert shown == set(KNOWN) - set(OF_ALERTS)


def test_panels_do_not_overlap_and_use_the_data_source() -> None:
    [source] = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    )["datasources"]
    taken = set()
    for panel in DASHBOARD["panels"]:
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": source["type"], "uid": source["uid"]}
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) >= 15
    [variable] = DASHBOARD["templating"]["list"]
    assert variable["query"]["query"] == "label_values(acker_up, namespace)"


def test_files_refer_to_each_other_as_they_are_mounted() -> None:
    services = load(ACKER_REDIS_SECRETS=".")["services"]
    [provider] = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "dashboards" / "acker-redis.yml").read_text()
    )["providers"]
    folder = provider["options"]["path"]
    assert f"./deploy/grafana/dashboards:{folder}:ro" in services["grafana"]["volumes"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/acker-redis.json"
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
    [job] = config["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert port in services[name]["command"]
    # Alerts and panels about the scrape itself select this job.
    assert {found for _, e in questions() for found in re.findall(r'job="(\w+)"', e)} == {
        job["job_name"]
    }
    shared = set(services["prometheus"]["networks"]) & set(services[name]["networks"])
    assert shared == {"metrics"}


def test_alerts_name_the_problem_and_the_fix() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 10
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        # A command ends the text, without a full stop that a reader would copy.
        assert re.search(r"\. Run first: \S.*[^.]$", rule["annotations"]["description"])
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
            assert any(label in KNOWN[name] for name in names(rule["expr"]))


def test_promtool_agrees(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        missing("promtool (apt install prometheus)")
    rules = DEPLOY / "prometheus" / "alerts.yml"
    done = subprocess.run([tool, "check", "rules", rules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """Return a series in the format of promtool."""
    all_labels = {"namespace": "orders", "job": "acker", "instance": "api:8000", **labels}
    inside = ",".join(f'{key}="{value}"' for key, value in all_labels.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def ended(acked: str, failed: str = "0x120") -> list[dict[str, str]]:
    """Return the counters of verdicts, by scrape."""
    return [
        series("acker_trees_total", acked, verdict="ack", reason="completed"),
        series("acker_trees_total", failed, verdict="nack", reason="failed"),
    ]


def trees(oldest_s: str, lives_s: int = 90, tick_s: int = 30, reshard: int = 0) -> list[Any]:
    """Return the metrics of the trees of a namespace."""
    return [
        series("acker_oldest_pending_age_seconds", oldest_s),
        series("acker_tree_lifetime_seconds", f"{lives_s}x120"),
        series("acker_tick_seconds", f"{tick_s}x120"),
        series("acker_resharding", f"{reshard}x120"),
    ]


def aimed(acked: str, failed: str, target: float = 0.99) -> list[dict[str, str]]:
    """Return the counters of verdicts, and the objective of the namespace."""
    return [*ended(acked, failed), series("acker_slo_target_ratio", f"{target}x120")]


def orphans(all_: str, after_failure: str) -> list[dict[str, str]]:
    """Return the counters of rows without a tree; ``after_failure`` are those of failed trees."""
    return [
        series("acker_rows_orphaned_total", all_),
        series("acker_rows_after_failure_total", after_failure),
    ]


def stopped(acked: str, expired: str, lives_s: int = 90) -> list[dict[str, str]]:
    """Return the metrics of a namespace whose trees expire."""
    return [
        *ended(acked),
        series("acker_trees_total", expired, verdict="nack", reason="expired"),
        series("acker_tree_lifetime_seconds", f"{lives_s}x120"),
    ]


def late(
    acked: str, useless: str, after_failure: str = "0x120", expired: str = "0+1x120"
) -> list[dict[str, str]]:
    """Return the metrics of a namespace where acks come after the end of their trees."""
    return [*stopped(acked, expired), *orphans(useless, after_failure)]


def window(down_s: str) -> list[dict[str, str]]:
    """Return for how long an edge of a source has been down."""
    return [series("acker_source_down_seconds", down_s, source="shop", edge="parts")]


def untaken(oldest_s: str, lives_s: int = 90) -> list[dict[str, str]]:
    """Return the age of the oldest verdict that a source has not taken."""
    return [
        series("acker_outcomes_oldest_seconds", oldest_s, source="shop"),
        series("acker_tree_lifetime_seconds", f"{lives_s}x120"),
    ]


def objective(target: float, acked: str, failed: str, slow: str = "0x120") -> list[Any]:
    """Return the metrics of the completeness of a namespace."""
    return [
        *ended(acked, failed),
        series("acker_trees_slow_total", slow),
        series("acker_slo_target_ratio", f"{target / 100:g}x120"),
    ]


def set_back(acked: str, failed: str, dataset: str) -> list[Any]:
    """Return the counters of a namespace after 42 scrapes, when Redis has older or no data.

    Many trees had failed long ago. With ``dataset`` the counters of the new data are new series.
    """
    old, new = ("1000+10x42", "2000x42"), (acked, failed)
    slow, target = series("acker_trees_slow_total", "0x120"), "acker_slo_target_ratio"
    found = [slow, series(target, "0.99x120")]
    if not dataset:
        return [*found, *ended(f"{old[0]} {acked}", f"{old[1]} {failed}")]
    for values, name in ((old, "a"), (new, dataset)):
        gone = " stale" if name == "a" else ""
        begins = "" if name == "a" else "_x42 "
        made = ended(*(f"{begins}{value}{gone}" for value in values))
        label = f'{{dataset="{name}",'
        found += [{**each, "series": each["series"].replace("{", label, 1)} for each in made]
    return found


SCENES: dict[str, tuple[str, list[Any], str, int]] = {
    "nothing is acked": ("AckerStalled", [*ended("7x120"), *trees("80x120")], "30s", 1),
    "nothing is acked, scraped once a minute": (
        "AckerStalled",
        [*ended("7x120"), *trees("80x120")],
        "1m",
        1,
    ),
    "trees are young": ("AckerStalled", [*ended("7x120"), *trees("40x120")], "30s", 0),
    "a batch every five minutes, of trees that live for a quarter of an hour": (
        "AckerStalled",
        [*ended("0x9 9+0x9 18+0x9 27+0x9 36+0x9"), *trees("0+30x9 0+30x9 0+30x9 0+30x9", 960, 60)],
        "30s",
        0,
    ),
    "a reshard runs": ("AckerStalled", [*ended("7x120"), *trees("80x120", reshard=1)], "30s", 0),
    "over twice the mark, and it rejects": (
        "AckerOverflow",
        [
            series("acker_high_water_ratio", "2.1x120"),
            series("acker_trees_total", "0+5x120", verdict="nack", reason="overflow"),
        ],
        "30s",
        1,
    ),
    "every tenth fails": ("AckerManyNacks", aimed("0+90x120", "0+10x120"), "30s", 1),
    "every tenth fails, which is an error": (
        "AckerMostNacks",
        aimed("0+89x120", "0+11x120"),
        "30s",
        1,
    ),
    "every twentieth fails": ("AckerManyNacks", aimed("0+95x120", "0+5x120"), "30s", 1),
    "every twentieth fails, which is no error": (
        "AckerMostNacks",
        aimed("0+95x120", "0+5x120"),
        "30s",
        0,
    ),
    "every hundredth fails": ("AckerManyNacks", aimed("0+99x120", "0+1x120"), "30s", 0),
    "every tenth fails, and may": ("AckerManyNacks", aimed("0+90x120", "0+10x120", 0.9), "30s", 0),
    "nothing was ever acked": (
        "AckerNeverAcked",
        [
            *ended("0x120", "3x120"),
            series("acker_trees_total", "1x120", verdict="nack", reason="expired"),
        ],
        "30s",
        1,
    ),
    "nothing was acked yet, and few failed": ("AckerNeverAcked", ended("0x120", "3x120"), "30s", 0),
    "something was acked": (
        "AckerNeverAcked",
        [
            *ended("1x120", "30x120"),
            series("acker_trees_total", "1x120", verdict="nack", reason="expired"),
        ],
        "30s",
        0,
    ),
    "a verdict waits": ("AckerVerdictsWait", untaken("301x120"), "30s", 1),
    "a verdict does not wait for that long": ("AckerVerdictsWait", untaken("299x120"), "30s", 0),
    "a verdict waits where trees live long": (
        "AckerVerdictsWait",
        untaken("301x120", 7200),
        "30s",
        0,
    ),
    "a tick is late": (
        "AckerRotationLate",
        [
            series("acker_rotation_lag_seconds", "31x120", shard="0"),
            series("acker_tick_seconds", "30x120"),
        ],
        "30s",
        1,
    ),
    "a tick is not that late": (
        "AckerRotationLate",
        [
            series("acker_rotation_lag_seconds", "29x120", shard="0"),
            series("acker_tick_seconds", "30x120"),
        ],
        "30s",
        0,
    ),
    "a fifth is not good": (
        "AckerBudgetBurnsFast",
        objective(99.0, "0+80x120", "0+20x120"),
        "30s",
        1,
    ),
    "a tenth is not good": (
        "AckerBudgetBurnsFast",
        objective(99.0, "0+90x120", "0+10x120"),
        "30s",
        0,
    ),
    "a tenth is not good, of a lax target": (
        "AckerBudgetBurns",
        objective(98.0, "0+90x120", "0+10x120"),
        "30s",
        0,
    ),
    "a tenth is not good, of a target of 99 %": (
        "AckerBudgetBurns",
        objective(99.0, "0+90x120", "0+10x120"),
        "30s",
        1,
    ),
    "a fifth was not good, but that is over": (
        "AckerBudgetBurnsFast",
        objective(99.0, "0+80x30 2420+100x90", "0+20x30 620x90"),
        "30s",
        0,
    ),
    "two in a hundred are not good": (
        "AckerBudgetBurnsSlowly",
        objective(99.0, "0+98x120", "0+2x120"),
        "30s",
        1,
    ),
    "one in 200 is not good": (
        "AckerBudgetBurnsSlowly",
        objective(99.0, "0+199x120", "0+1x120"),
        "30s",
        0,
    ),
    "a fifth is slow": (
        "AckerBudgetBurnsFast",
        objective(99.0, "0+100x120", "0x120", "0+20x120"),
        "30s",
        1,
    ),
    "a failover sets counters back by a little, and the series go on": (
        "AckerBudgetBurnsFast",
        set_back("1400+10x77", "1990x77", ""),
        "30s",
        1,
    ),
    "a failover sets counters back by a little": (
        "AckerBudgetBurnsFast",
        set_back("1400+10x77", "1990x77", "b"),
        "30s",
        0,
    ),
    "a namespace is dropped and created again": (
        "AckerBudgetBurnsFast",
        set_back("0+10x77", "0x77", ""),
        "30s",
        0,
    ),
    "a failover, and then trees fail": (
        "AckerBudgetBurnsFast",
        set_back("1400+8x77", "1990+50x77", "b"),
        "30s",
        1,
    ),
    "nothing ends": ("AckerBudgetBurnsFast", objective(99.0, "5x120", "2x120"), "30s", 0),
    "rows come late": ("AckerOrphans", orphans("0+2x120", "0+1x120"), "30s", 1),
    "rows of failed trees come late": ("AckerOrphans", orphans("0+2x120", "0+2x120"), "30s", 0),
    "all bolts are away": ("AckerStopped", stopped("7x120", "0+1x120"), "30s", 1),
    "one tree of many is acked": ("AckerStopped", stopped("0x45 1x75", "0+1x120"), "30s", 0),
    "nothing to do": ("AckerStopped", stopped("7x120", "3x120"), "30s", 0),
    "trees live for an hour": ("AckerStopped", stopped("7x120", "0+1x120", 3600), "30s", 0),
    "a queue of expired trees": ("AckerCongested", late("0+94x120", "0+5x120"), "30s", 1),
    "some work is useless": ("AckerCongested", late("0+96x120", "0+4x120"), "30s", 0),
    "little work is useless": ("AckerCongested", late("0+1x120", "0x40 9x80"), "30s", 0),
    "late work of failed trees": (
        "AckerCongested",
        late("0+9x120", "0+9x120", "0+9x120"),
        "30s",
        0,
    ),
    "late work, and nothing expires": (
        "AckerCongested",
        late("0+1x120", "0+9x120", expired="4x120"),
        "30s",
        0,
    ),
    "an edge is down": ("AckerSourceDown", window("0x30 1+30x90"), "30s", 1),
    "an edge was down": ("AckerSourceDown", window("1+30x30 0x90"), "30s", 0),
    "a tree is far too old": ("AckerOldTree", trees("3700x120"), "30s", 1),
    "a tree is old where trees live long": ("AckerOldTree", trees("3700x120", 7200), "30s", 0),
}
"""Alert, series, scrape interval, and expected number of alerts."""


@pytest.mark.parametrize("scene", SCENES)
def test_an_alert_fires_when_it_should(scene: str, tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        missing("promtool (apt install prometheus)")
    name, read, interval, count = SCENES[scene]
    [rule] = [each for each in RULES if each["alert"] == name]
    plain = {**rule, "annotations": {}}
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "acker", "rules": [plain]}]})
    )
    expected = {"exp_labels": {"namespace": "orders", "severity": rule["labels"]["severity"]}}
    if name in ("AckerOldTree", "AckerVerdictsWait", "AckerSourceDown"):
        expected["exp_labels"] |= {"job": "acker", "instance": "api:8000"}
    if name in ("AckerVerdictsWait", "AckerSourceDown"):
        expected["exp_labels"] |= {"source": "shop"}
    if name == "AckerSourceDown":
        expected["exp_labels"] |= {"edge": "parts"}
    test = {
        "interval": interval,
        "input_series": read,
        "alert_rule_test": [
            {"eval_time": "25m", "alertname": name, "exp_alerts": [expected] * count}
        ],
    }
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [test]})
    )
    done = subprocess.run(
        [tool, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
