"""acker-redis slo and acker-redis history."""

import csv
import json
import re

from acker_redis import SourceEdge
from acker_redis.protocol import commands
from acker_redis.protocol.history import HOUR_MS, MINUTE_MS, Point
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cli.conftest import Shell
from tests.conftest import MakeAcker
from tests.rotator.test_history import put
from tests.support import fail, row, track


def filled(make_any_acker: MakeAcker) -> Acker:
    """Return a namespace with a day of history, in which 1 of 400 trees was not good."""
    acker = make_any_acker(slo_target=99.5, slo_ms=60_000)
    for anchor in range(1, 5):
        track(acker, anchor, 40)
        row(acker, anchor, 40) if anchor < 4 else fail(acker, anchor)
    now = Point.of(acker.status())
    for ago in (30 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS, 5 * MINUTE_MS, 4 * MINUTE_MS, MINUTE_MS):
        put(acker, ago, now, tracked=0, acked=0, failed=0, waiting=0, sources={})
    return acker


def test_slo_is_one_sentence_per_source(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = filled(make_any_acker).namespace
    burn = "burn rate 50 over 5m, 50 over 1h, 50 over 6h"
    *objectives, lost = shell("slo", ns).out.splitlines()
    assert objectives == [
        f"{ns}: 75 % complete within 60 s, 30 h, budget left -4900 %; {burn}",
        "t: 75 % complete within 60 s, 30 h, budget left -4900 %; burn rate 50 over 1h, 50 over 6h",
    ]
    assert re.fullmatch(
        rf"{ns}: 1 of the 4 trees that ended in the last 2 h were nacked \(25 %\); "
        r"there are nacks at least since \d{4}-\d\d-\d\d \d\d:\d\d",
        lost,
    )
    found = json.loads(shell("slo", ns, "--json").out)
    assert (found["nacks"]["nacked"], found["nacks"]["since_known"]) == (1, False)
    whole, source = found["objectives"]
    assert (whole["ended"], whole["good"], whole["good_percent"], whole["met"]) == (4, 3, 75, False)
    assert (source["source"], source["target_percent"], source["within_ms"]) == ("t", 99.5, 60_000)
    assert whole["burn_rates"]["1h"]["rate"] == 50
    rows = list(csv.DictReader(shell("slo", ns, "--csv").out.splitlines()))
    assert [each["source"] for each in rows] == ["", "t"]
    assert [rows[0][name] for name in ("ended", "good", "burn_rate_5m")] == ["4", "3", "50.0"]
    assert rows[1]["burn_rate_5m"] == ""


def test_slo_without_history_says_so(make_any_acker: MakeAcker, shell: Shell) -> None:
    ran = shell("slo", make_any_acker().namespace)
    assert "no tree ended" in ran.out
    assert "there is no history yet" in ran.err


def test_history_shows_gaps_and_sums(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = filled(make_any_acker).namespace
    lines = shell("history", ns).out.splitlines()
    assert lines[0].split() == [
        *("until", "tracked", "acked", "failed", "expired", "overflow", "conflict"),
        *("open", "waiting"),
    ]
    assert ["no points since" in line for line in lines[1:]] == [False, True, False]
    found = json.loads(shell("history", ns, "--range", "1h", "--json").out)
    assert (found["range"], found["step_ms"], len(found["buckets"])) == ("1h", 60_000, 3)
    assert sum(bucket["tracked"] for bucket in found["buckets"]) == 4
    assert found["buckets"][-1]["waiting"] == 4
    rows = list(csv.DictReader(shell("history", ns, "--range", "30d", "--csv").out.splitlines()))
    assert [each["gap"] for each in rows][:2] == ["true", "false"]
    assert sum(int(each["acked"]) for each in rows) == 3
    assert shell("history", ns, "--range", "2h").code == 2


def test_history_and_status_show_an_outage(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(edges=("parts", "paint"))
    now, ns = Point.of(acker.status()), acker.namespace
    put(acker, 2 * MINUTE_MS, now)
    put(acker, MINUTE_MS, now, down=2, useless=7)
    first, second = shell("history", ns).out.splitlines()[1:]
    assert first.endswith("  no answer to sources on 2 edges; useless work on 7 expired trees")
    assert "answer" not in second
    edges = [SourceEdge("parts", 100, 7, 5, None), SourceEdge("paint", None, 1, 0, 90.0)]
    acker.connection.run(commands.report(ShardKeys(ns, 0), "shop", edges))
    shown = shell("status", ns).out
    assert "shop on parts: 7 of 100 in flight, 5 waiting" in shown
    assert "shop on paint: 1 in flight, 0 waiting, no answer for 1 min 3" in shown
    reports = json.loads(shell("status", ns, "--json").out)["reports"]
    assert [(each["source"], each["edge"], each["window"]) for each in reports] == [
        ("shop", "parts", 100),
        ("shop", "paint", None),
    ]
