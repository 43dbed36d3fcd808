"""The command doctor; tests/doctor tests its findings."""

import json

from acker_redis.protocol.keys import ShardKeys
from tests.cli.support import Shell, run
from tests.conftest import MakeAcker


def test_doctor_prints_problems_and_fixes(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(tick_ms=1000)
    acker.connection.client.hincrby(ShardKeys(acker.namespace, 0).meta, "ticked_ms", -600_000)
    ran = shell("doctor", acker.namespace, "--no-canary")
    assert ran.code == 2
    lines = ran.out.splitlines()
    [place] = [n for n, line in enumerate(lines) if line.startswith("error   rotator")]
    assert acker.namespace in lines[place]
    assert "acker-redis rotator" in "".join(lines[place : place + 3])


def test_doctor_as_json_with_warnings(make_any_acker: MakeAcker, shell: Shell) -> None:
    ran = shell("doctor", make_any_acker().namespace, "--json")
    report = json.loads(ran.out)
    assert ran.code == report["exit_code"] == 1
    levels = {finding["id"]: finding["level"] for finding in report["findings"]}
    assert levels["persistence"] == "warning"  # the embedded server writes nothing to disk
    assert levels["canary"] == levels["rights"] == "ok"


def test_doctor_reports_an_unreachable_redis() -> None:
    ran = run("doctor", "--url", "redis://127.0.0.1:1/0")
    assert ran.code == 2
    assert ran.out.startswith("error   reachable ")


def test_doctor_rejects_an_unknown_role(shell: Shell) -> None:
    ran = shell("doctor", "--role", "king")
    assert ran.code == 1
    assert "use one of producer" in ran.err
