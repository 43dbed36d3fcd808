"""Each client makes the calls of all cases, and the runner detects a client that deviates."""

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acker_redis.embedded import EmbeddedRedis
from clients import sync_lua
from tests.cluster.servers import Cluster
from tests.languages.cases import Runner, for_clusters, load
from tests.languages.clients import CLIENTS, HERE, Client
from tests.languages.conftest import SIDES, SLOW, name_of
from tests.languages.driver import Driver
from tests.languages.monitor import Monitor, unescape
from tests.languages.server import Server

Json = Any
CASES = load()
Place = tuple[Server, Monitor, bool]


@pytest.fixture(scope="module")
def on_one(alone: EmbeddedRedis) -> Iterator[Place]:
    server = Server([alone.port])
    server.load_scripts()
    with Monitor(server.ports) as monitor:
        yield server, monitor, False
    server.close()


@pytest.fixture(scope="module")
def on_three(masters: Cluster) -> Iterator[Place]:
    server = Server([node.server.port for node in masters.nodes], masters.client())
    server.load_scripts()
    with Monitor(server.ports) as monitor:
        yield server, monitor, True
    masters.flush()
    server.close()


def runner(driver: Driver, place: Place) -> Runner:
    server, monitor, cluster = place
    driver.connect(*server.ports, cluster=cluster)
    return Runner(server, driver, monitor)


def report(found: dict[str, str]) -> str:
    return "\n".join(f"{name}: {said}" for name, said in found.items())


def least(client: Client) -> int:
    """Return the minimum number of calls that a client makes in all cases."""
    return 800 if "blocks" in client.can else 500


def test_server_agrees_with_the_cases(driver: Driver, on_one: Place) -> None:
    ran = runner(driver, on_one)
    found = ran.mismatches(CASES)
    assert not found, report(found)
    assert ran.compared >= least(driver.client)
    assert ran.read > 300


@pytest.mark.parametrize(
    "side",
    [
        pytest.param(side, marks=pytest.mark.nightly if side[0].name == SLOW else [])
        for side in SIDES
    ],
    ids=name_of,
    indirect=True,
)
def test_cluster_agrees_with_the_cases(driver: Driver, on_three: Place) -> None:
    ran = runner(driver, on_three)
    found = ran.mismatches(for_clusters(CASES))
    assert not found, report(found)
    assert ran.compared >= least(driver.client)


def test_unknown_script_is_sent_by_eval(driver: Driver, on_one: Place) -> None:
    """For example after a restart: the reply to EVALSHA is NOSCRIPT."""
    ran = runner(driver, on_one)
    server = on_one[0]
    try:
        server.nodes[0].script_flush()
        ran.without_scripts = True
        found = ran.mismatches({"chain": CASES["chains: chain"]})
        assert not found, report(found)
    finally:
        server.load_scripts()


def _delta(v: Json) -> None:
    argv = v["steps"][2]["calls"][0]["argv"]
    argv[4] = argv[4][:-1] + f"{int(argv[4][-1], 16) ^ 1:x}"


def _flag_missing(v: Json) -> None:
    v["steps"][1]["calls"][0]["argv"][2] = "00"


def _shard(v: Json) -> None:
    v["steps"][2]["calls"][0]["keys"] = [
        bytes(b"acker:{vector:1}" + tail).hex() for tail in (b"", b":meta")
    ]


def _refused(v: Json) -> None:
    v["steps"][2] |= {"refused": True, "calls": []}


def _new_row(v: Json) -> None:
    """Use a kind of row that no client knows."""
    (row,) = v["steps"][2]["do"]["apply"]["rows"]
    v["steps"][2]["do"]["apply"]["rows"] = [{"postpone": row["ack"]}]


def _fenced(v: Json) -> None:
    """Give the client a lane that the calls of the case do not have."""
    v["steps"][2]["do"]["apply"] |= {"producer": "p", "seq": "1", "digest": "aa"}


def _reply(v: Json) -> None:
    """Change a count in a reply: the client still answers with the true count."""
    v["steps"][3]["calls"][0]["reply"][2] = 7


BROKEN = [_delta, _flag_missing, _shard, _refused, _new_row, _fenced, _reply]


def test_runner_detects_broken_cases(driver: Driver, on_one: Place) -> None:
    cases = {}
    for spoil in BROKEN:
        cases[spoil.__name__] = copy.deepcopy(CASES["chains: chain"])
        spoil(cases[spoil.__name__])
    ran = runner(driver, on_one)
    assert set(ran.mismatches(cases)) == set(cases)
    assert not ran.mismatches({"as it is": CASES["chains: chain"]})


LIAR = """
import json, sys
for line in sys.stdin:
    answer = {"tracked": 1, "acked": 0, "failed": 0, "rejected": [], "rejected_blocks": [],
              "repeated": False, "outcomes": []}
    print(json.dumps(answer if json.loads(line)["op"] == "apply" else {}), flush=True)
"""


def test_runner_checks_the_calls_on_the_server(on_one: Place, tmp_path: Path) -> None:
    """A driver that reports success without sending a call is detected."""
    (tmp_path / "liar").mkdir()
    liar = Client("liar", "Python", (sys.executable, "-c", LIAR), can=("blocks",), home=tmp_path)
    with Driver(liar) as driver:
        found = runner(driver, on_one).mismatches({"chain": CASES["chains: chain"]})
    assert "step 1, calls of acker:{vector:0}: [] is not" in found["chain"]


def test_monitor_output_is_decoded_to_bytes(on_one: Place) -> None:
    server, monitor, _ = on_one
    word = bytes(range(256)) + rb'\x41 \" \\ "'
    monitor.begin()
    server.nodes[0].execute_command("ECHO", word)
    (command,) = monitor.end()
    assert command.words == (b"ECHO", word)
    assert unescape(rb"a\x00\\x41\"") == b'a\x00\\x41"'


def test_no_copy_of_a_script_is_committed() -> None:
    assert set(sync_lua.clients()) == set(CLIENTS)
    words = ["git", "ls-files", "clients/*/lua/*"]
    listed = subprocess.run(words, cwd=HERE.parent, capture_output=True, check=False)
    assert listed.stdout == b""


def test_pages_name_each_client() -> None:
    pages = {
        HERE / "README.md": "[`{0.name}/`]({0.name}/README.md)",
        HERE.parent / "docs" / "how-to" / "add-a-language.md": "| {0.language} |",
    }
    for page, words in pages.items():
        for client in CLIENTS.values():
            assert words.format(client) in page.read_text()


@pytest.mark.parametrize("change", ["other", "missing", "one more"])
def test_stale_script_is_reported_and_repaired(change: str, tmp_path: Path) -> None:
    lua = tmp_path / "some" / "lua"
    lua.mkdir(parents=True)
    (tmp_path / "some" / "client.json").write_text("{}")
    assert sync_lua.clients(tmp_path) == ["some"]
    sync_lua.sync(["some"], tmp_path)
    assert sync_lua.stale(["some"], tmp_path) == []
    spoil: dict[str, Callable[[], object]] = {
        "other": lambda: (lua / "take.lua").write_bytes(b" " + (lua / "take.lua").read_bytes()),
        "missing": (lua / "take.lua").unlink,
        "one more": lambda: (lua / "old.lua").write_text(""),
    }
    spoil[change]()
    named = "old.lua" if change == "one more" else "take.lua"
    assert sync_lua.stale(["some"], tmp_path) == [f"some/lua/{named}"]
    sync_lua.sync(["some"], tmp_path)
    assert sync_lua.stale(["some"], tmp_path) == []


def test_unknown_client_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert sync_lua.main(["cobol"]) == 2
    assert "no such client: cobol; there are c, go" in capsys.readouterr().out
