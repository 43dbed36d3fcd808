"""Commands that create, configure, reshard and drop namespaces."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol import scripts
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cli.support import PATIENT, Shell, run
from tests.conftest import MakeAcker
from tests.support import track
from tests.waiting import LIMIT

COMMAND = [sys.executable, "-m", "acker_redis"]


def test_create_is_idempotent_and_list_shows_the_namespace(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    other = make_any_acker().namespace
    args = ("create", "cli-ns", "--shards", "2", "--high-water", "5")
    lifetime = (
        "a tree that is not complete expires 1 min to 1 min 30 s after its first message; sources "
        "wait from 5 pending trees on\n"
    )
    assert shell(*args).out == f"cli-ns: created\n{lifetime}"
    again = "cli-ns: exists, with these settings; nothing changed\n"
    assert shell(*args).out == again + lifetime
    # Settings that are not in the command are not compared.
    assert shell("create", "cli-ns").out == again + lifetime
    assert shell("create", "cli-ns", "--shards", "2", "--buckets", "3").out == again + lifetime
    assert json.loads(shell(*args, "--json").out)["created"] is False
    clash = shell("create", "cli-ns", "--shards", "4")
    assert (clash.code, clash.out) == (1, "")
    assert "was created with shards 2, not 4" in clash.err
    for option, value, words in (
        ("--high-water", "100000", "high_water 5, not 100000"),  # the default, but it was typed
        ("--edge", "mill", "was created with edges"),
        ("--profile", "spark", "tick_ms 30000, not 600000"),
        ("--refresh", "update", "created with refresh never, not update; refresh='update' needs"),
    ):
        clash = shell("create", "cli-ns", option, value)
        assert (clash.code, clash.out) == (1, "")
        assert words in clash.err
    assert shell("namespaces").out.splitlines() == sorted(["cli-ns", other])
    assert json.loads(shell("namespaces", "--json").out) == {
        "namespaces": sorted(["cli-ns", other])
    }


def test_create_for_a_profile_uses_its_settings_unless_others_are_given(shell: Shell) -> None:
    said = shell("create", "cli-spark", "--profile", "spark", "--edge", "orders").out
    assert "expires 20 min to 30 min after its first message" in said
    assert "from 2,000,000 pending trees on" in said
    assert "tick_ms 600000, not 30000" in shell("create", "cli-spark", "--profile=service").err
    with Acker.from_url(shell.url, "cli-spark") as acker:
        assert acker.config == AckerConfig.for_profile("spark", edges=("orders",))
    # A value that equals the default was given, too.
    given = ("--profile", "spark", "--tick-ms", "30000", "--refresh", "update")
    said = shell("create", "cli-mixed", *given, "--deadline-ms", "3600000").out
    assert "1 min to 1 min 30 s after its last message, and at most 1 h" in said
    with Acker.from_url(shell.url, "cli-mixed") as acker:
        assert (acker.config.tick_ms, acker.config.high_water) == (30_000, 2_000_000)
    assert shell("create", "cli-other", "--profile", "sparks").code == 2


def test_create_sets_the_objective(shell: Shell) -> None:
    given = ("create", "cli-slo", "--slo-target", "99.9", "--slo-ms", "60000")
    assert json.loads(shell(*given, "--json").out)["config"]["slo_target"] == 99.9
    with Acker.from_url(shell.url, "cli-slo") as acker:
        assert (acker.config.slo_target, acker.config.slo_ms) == (99.9, 60_000)
    assert "exists, with these settings" in shell(*given).out
    assert "exists, with these settings" in shell("create", "cli-slo").out
    other = shell("create", "cli-slo", "--slo-target", "99.5")
    assert "was created with slo_target 99.9, not 99.5" in other.err


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_create_warns_where_redis_may_evict(
    make_any_acker: MakeAcker, shell: Shell, policy: str
) -> None:
    client = make_any_acker().connection.client
    client.config_set("maxmemory-policy", policy)
    try:
        made = shell("create", "evicted", "--json")
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    assert (made.code, json.loads(made.out)["created"]) == (0, True)
    assert f"maxmemory-policy is {policy}" in made.err
    assert "CONFIG SET maxmemory-policy noeviction" in made.err
    assert shell("create", "evicted").err == ""


def test_create_without_the_right_to_info_gives_no_warning(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    client = make_any_acker().connection.client
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.execute_command("ACL", "SETUSER", "maker", "on", ">pw", "~*", "&*", "+@all", "-info")
    try:
        url = shell.url.replace("//", "//maker:pw@")
        made = run("create", "evicted", "--url", url)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.acl_deluser("maker")
    assert (made.code, made.err) == (0, "")


def test_the_url_comes_from_the_environment(
    make_any_acker: MakeAcker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_any_acker()
    monkeypatch.setenv("ACKER_REDIS_URL", shell.url)
    assert "created" in run("create", "cli-env").out


def test_config_get_and_set(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    ns = acker.namespace
    assert "high_water      100000\n" in shell("config", "get", ns).out
    assert shell("config", "set", ns, "high_water", "77").out == f"{ns}: high_water set to 77\n"
    shell("config", "set", ns, "tick_ms", "5000")
    shell("config", "set", ns, "outcomes_limit", "9")
    found = json.loads(shell("config", "get", ns, "--json").out)
    assert AckerConfig(**{**found, "edges": ()}) == AckerConfig(
        shards=2, high_water=77, tick_ms=5000, outcomes_limit=9
    )
    for name, words in {
        "shards": f"acker-redis reshard {ns} --shards N",
        "buckets": f"buckets is fixed at creation; drop {ns} and create it again",
        "edges": "edges is fixed at creation",
        "hi": "'hi' is none of tick_ms, high_water",
    }.items():
        ran = shell("config", "set", ns, name, "4")
        assert (ran.code, ran.out) == (2, "")
        assert words in " ".join(ran.err.replace("│", " ").split())
    wrong = shell("config", "set", ns, "high_water", "-5")
    assert (wrong.code, "high_water is a whole number from 1 to" in wrong.err) == (1, True)
    for name, value in {"slo_target": "99.95", "slo_ms": "60000"}.items():
        assert shell("config", "set", ns, name, value).out == f"{ns}: {name} set to {value}\n"
        assert f"{name:15} {value}\n" in shell("config", "get", ns).out
    wrong = shell("config", "set", ns, "slo_target", "100")
    assert "slo_target is a percentage from 50 to 99.999" in wrong.err
    wrong = shell("config", "set", ns, "tick_ms", "1.5")
    assert "tick_ms is a whole number from 1 to 1000000000000, not 1.5" in wrong.err
    wrong = shell("config", "set", ns, "tick_ms", "0")
    assert wrong.code == 1
    assert "tick_ms is a whole number from 1" in wrong.err


def test_drop_asks_first(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    track(acker, 7, 5, "a")
    track(acker, 8, 0, "b")
    asked = shell("drop", acker.namespace, stdin="n\n")
    assert asked.code == 1
    assert "1 pending trees and 1 waiting verdicts?" in asked.err
    assert acker.status().pending == 1
    dropped = shell("drop", acker.namespace, stdin="y\n")
    assert (dropped.code, dropped.out) == (
        0,
        f"{acker.namespace}: dropped with 1 pending trees and 1 waiting verdicts\n",
    )
    with pytest.raises(NamespaceNotFoundError):
        acker.status()
    assert shell("namespaces").out == ""


def test_drop_as_json(make_any_acker: MakeAcker, shell: Shell) -> None:
    ns = make_any_acker().namespace
    found = json.loads(shell("drop", ns, "--yes", "--json").out)
    assert found == {"namespace": ns, "dropped": True, "pending": 0, "waiting": 0}


def test_acl_prints_a_line_with_no_password_in_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\n")
    args = ("acl", "producer", "orders", "--user", "shop", "--password-file", str(file))
    line = run(*args).out
    assert line.startswith("user shop reset on #")
    assert "~acker:{orders:*}*" in line
    assert "hush" not in line
    found = json.loads(run(*args, "--json").out)
    assert found["rule"] == line.strip()
    assert "EVALSHA" in found["commands"]


def test_acl_with_functions_prints_a_user_who_cannot_eval() -> None:
    line = run("acl", "viewer", "orders", "--functions").out
    assert "resetkeys %R~acker:{orders:*}* " in line
    assert "+fcall_ro" in line
    assert "+eval" not in line
    found = json.loads(run("acl", "viewer", "orders", "--functions", "--json").out)
    assert found["rule"] == line.strip()
    assert "FCALL_RO" in found["commands"]
    assert not {"EVAL", "EVALSHA"} & set(found["commands"])


def test_reshard(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    ns = acker.namespace
    assert shell("reshard", ns, "--shards", "4", "--yes").code == 0
    assert Acker(acker.connection.client, ns).config.shards == 4
    wrong = shell("reshard", ns, "--shards", "3", "--yes")
    assert wrong.code == 1
    assert "power of two" in wrong.err


def test_a_running_reshard_is_reported_and_can_be_cancelled(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    track(acker, 7, 5, "a")
    meta = ShardKeys(acker.namespace, 0).meta
    acker.connection.client.hset(meta, "reshard", "1:2")  # as a killed reshard leaves it
    ns = acker.namespace
    assert (
        "Resharding to 2 shards: no new tree is tracked" in shell("status", ns, "--sample", "0").out
    )
    assert json.loads(shell("status", ns, "--json", "--sample", "0").out)["resharding_to"] == 2
    refused = shell("track", ns, "t", "b")
    assert refused.code == 1
    assert "resharding to 2 shards" in refused.err
    assert shell("reshard", ns, "--cancel").out == f"{ns}: has 1 shard; reshard cancelled\n"
    assert shell("track", ns, "t", "b").code == 0


def test_a_reshard_that_times_out_is_rolled_back(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    track(acker, 7, 5, "a")
    ran = shell("reshard", acker.namespace, "--shards", "2", "--wait", "0", "--yes")
    assert ran.code == 1
    assert "open again" in ran.err
    assert acker.status().shards[0].reshard is None


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_reshard_is_rolled_back(
    make_any_acker: MakeAcker, shell: Shell, end: signal.Signals
) -> None:
    acker = make_any_acker()
    track(acker, 7, 5, "a")
    process = subprocess.Popen(
        [*COMMAND, "reshard", acker.namespace, "--shards", "2", "--yes"],
        env={"ACKER_REDIS_URL": shell.url, **PATIENT},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr
        while "pending" not in process.stderr.readline():
            assert process.poll() is None
        assert acker.status().shards[0].reshard
        process.send_signal(end)
        process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 128 + end
    assert acker.status().shards[0].reshard is None


def test_scripts_writes_complete_scripts(tmp_path: Path) -> None:
    ran = run("scripts", "--out", str(tmp_path / "made" / "lua"), "--json")
    assert ran.code == 0
    written = json.loads(ran.out)
    assert set(written) == set(scripts.NAMES)
    for name, each in written.items():
        text = Path(each["file"]).read_bytes()
        assert hashlib.sha1(text).hexdigest() == each["sha1"] == scripts.load(name).sha
        assert b"-- part: " not in text


def test_scripts_into_an_unwritable_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("scripts", "--out", str(tmp_path / "file" / "lua"))
    assert ran.code == 1
    assert "cannot read or write" in ran.err
