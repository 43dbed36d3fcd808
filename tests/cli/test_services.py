"""The rotator as a process, rotate, bench, demo and simulate."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Outcome
from acker_redis.sync.client import Acker
from tests.cli.support import PATIENT, Shell, run
from tests.conftest import MakeAcker
from tests.support import track
from tests.waiting import LIMIT, wait_until


def expired(acker: Acker) -> list[str]:
    """Wait for verdicts; return their reasons."""
    found: list[Outcome] = []
    wait_until(lambda: found.extend(acker.outcomes("t")) or found, "a verdict")
    return [outcome.reason for outcome in found]


@pytest.mark.parametrize(
    ("end", "args"), [(signal.SIGTERM, ["--json"]), (signal.SIGINT, ["--all", "--json"])]
)
def test_rotator_process_expires_trees_and_stops_on_a_signal(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, end: int, args: list[str]
) -> None:
    acker = make_any_acker(tick_ms=100)
    track(acker, 7, 5, "s7")
    names = [] if "--all" in args else [acker.namespace]
    rotator = subprocess.Popen(
        [sys.executable, "-m", "acker_redis", "rotator", *names, *args],
        stderr=subprocess.PIPE,
        text=True,
        env={"ACKER_REDIS_URL": any_server.url, **PATIENT},
    )
    try:
        assert expired(acker) == ["expired"]
        # Redis has the verdict before the rotator logs the tick.
        assert rotator.stderr
        tick: dict[str, Any] = {}
        while not tick.get("expired"):
            tick = json.loads(rotator.stderr.readline())
        rotator.send_signal(end)
        _, log = rotator.communicate(timeout=LIMIT)
    finally:
        rotator.kill()
    assert rotator.returncode == 0
    assert json.loads(log.splitlines()[-1])["event"] == "left"
    assert (tick["event"], tick["expired"]) == ("tick", 1)
    assert (tick["namespace"], tick["shard"]) == (acker.namespace, 0)
    assert tick["late_ms"] >= 0


def test_rotator_once_ticks_due_shards_and_exits(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    before = acker.status().shards
    acker.connection.client.hincrby(ShardKeys(acker.namespace, 1).meta, "ticked_ms", -4_000_000)
    assert shell("rotator", acker.namespace, "--once").code == 0
    after = acker.status().shards
    assert after[0].ticked_ms == before[0].ticked_ms
    assert after[1].ticked_ms >= before[1].ticked_ms


def test_rotate_by_hand(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    track(acker, 2, 5, "a")
    ns = acker.namespace
    assert shell("rotate", ns).out == f"{ns}: 0 of 2 shards ticked, 0 trees expired\n"
    shell("rotate", ns, "--force")
    shell("rotate", ns, "--force")
    found = json.loads(shell("rotate", ns, "--force", "--json").out)
    assert found == {"namespace": ns, "shards_ticked": 2, "expired": 1}


def test_demo_refuses_a_directory_that_exists(tmp_path: Path) -> None:
    ran = run("demo", "--keep", str(tmp_path))
    assert ran.code == 2
    assert "exists" in ran.err


def test_bench_removes_its_keys(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    before = acker.connection.client.dbsize()
    found = json.loads(shell("bench", "--seconds", "0.1", "--json").out)
    assert acker.connection.client.dbsize() == before
    rates = {rate["name"]: rate["per_second"] for rate in found["rates"]}
    assert len(rates) == 5
    assert all(rate > 0 for rate in rates.values())
    assert [wait["name"] for wait in found["waits"]] == ["PING", "a batch of one row"]
    assert "of HINCRBY" in shell("bench", "--seconds", "0.1").out


def test_simulate_as_json() -> None:
    ran = run("simulate", "--seeds", "2", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["violation"] is None
    broken = run("simulate", "--seeds", "20", "--break", "shared", "--json")
    assert broken.code == 1
    assert "false ack" in json.loads(broken.out)["violation"]


def test_simulate_without_a_checkout_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proof.simulate.show", None)
    ran = run("simulate")
    assert ran.code == 2
    assert "not in the wheel: run python -m acker_redis simulate in a checkout" in ran.err


def test_a_terminated_bench_removes_its_keys(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    client = make_any_acker().connection.client
    before = set(client.keys("*"))
    bench = subprocess.Popen(
        [sys.executable, "-m", "acker_redis", "bench", "--seconds", "60"],
        env={"ACKER_REDIS_URL": any_server.url, **PATIENT},
    )
    try:
        wait_until(lambda: set(client.keys("*")) != before, "the bench has begun")
        bench.terminate()
        assert bench.wait(LIMIT) == 128 + signal.SIGTERM
    finally:
        bench.kill()
    assert set(client.keys("*")) == before


def test_rotator_waits_for_an_unreachable_cluster() -> None:
    rotator = subprocess.Popen(
        [sys.executable, "-m", "acker_redis", "rotator", "--all", "--json"],
        env={"ACKER_REDIS_URL": "redis+cluster://127.0.0.1:1", **PATIENT},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert rotator.stderr
        assert "cannot connect" in rotator.stderr.readline()
        rotator.terminate()
        rotator.communicate(timeout=LIMIT)
    finally:
        rotator.kill()
    assert rotator.returncode == 0
    once = run("rotator", "--all", "--once", "--url", "redis+cluster://127.0.0.1:1")
    assert once.code == 1
