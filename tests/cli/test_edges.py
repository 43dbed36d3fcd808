"""Edges on the command line: where messages of expired and of pending trees are missing."""

import json
import re

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.cli.status_view import draw_edges
from acker_redis.ops import acl
from acker_redis.protocol.config import AckerConfig
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from acker_redis.trees.processing import Processing
from tests.cli.support import Shell, run
from tests.conftest import MakeAcker
from tests.support import track

EDGES = ("mill", "shop", "till")
SENTENCE = r"last row \d+ m?s ago, of \d+ m?s"


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(edges=EDGES)


def expire(acker: Acker) -> None:
    """Let all pending trees expire."""
    for _ in range(acker.config.buckets):
        Rotator(acker).step(force=True)


def lines(out: str) -> list[list[str]]:
    return [line.split("\t") for line in out.splitlines()]


def edges_of(acker: Acker, messages: list[str]) -> list[tuple[str, ...]]:
    """Return the edges that the ids of messages of one tree name."""
    return [acker.ids.edges_of(int(each.partition(":")[2])) for each in messages]


def test_create_fixes_the_edges(shell: Shell, acker: Acker) -> None:
    command = ("create", "farm", "--edge", "mill", "--edge", "shop")
    assert shell(*command).out.startswith("farm: created\n")
    again = "farm: exists, with these settings; nothing changed\n"
    assert shell(*command).out.startswith(again)
    assert "edges           mill,shop\n" in shell("config", "get", "farm").out
    assert json.loads(shell("config", "get", "farm", "--json").out)["edges"] == ["mill", "shop"]
    other = shell("create", "farm", "--edge", "shop", "--edge", "mill")
    assert (other.code, other.out) == (1, "")
    assert "was created with edges mill,shop, not shop,mill" in other.err
    assert "it cannot be changed; drop the namespace, or use another name" in other.err
    without = shell("create", "field", "--json")
    assert json.loads(without.out)["config"]["edges"] == []
    assert shell("config", "get", "field").out.splitlines()[8] == "edges"


def test_track_names_the_edge_of_the_first_messages(shell: Shell, acker: Acker) -> None:
    [[_, *ids]] = lines(
        shell("track", acker.namespace, "farm", "a", "-n", "2", "--edge", "shop").out
    )
    assert edges_of(acker, ids) == [("shop",), ("shop",)]
    [[_, *ids]] = lines(shell("track", acker.namespace, "farm", "b").out)
    assert edges_of(acker, ids) == [()]


@pytest.mark.parametrize(
    ("options", "edges"),
    [
        (["--emit", "2"], [(), ()]),
        (["--emit", "2", "--edge", "shop"], [("shop",), ("shop",)]),
        (["--emit", "2", "--edge", "shop", "--edge", "till"], [("shop",), ("till",)]),
        (["--edge", "till", "--edge", "", "-n", "1", "-c", "bread"], [("till",), ()]),
        (["--child", "x", "--child", "y", "--edge", "till"], [("till",), ("till",)]),
    ],
)
def test_ack_names_the_edges_of_new_messages(
    shell: Shell, acker: Acker, options: list[str], edges: list[tuple[str, ...]]
) -> None:
    [[_, message]] = lines(shell("track", acker.namespace, "farm", "a", "--edge", "mill").out)
    [ids] = lines(shell("ack", acker.namespace, message, *options).out)
    assert edges_of(acker, ids) == edges
    for each in ids:
        assert shell("ack", acker.namespace, each).code == 0
    [[verdict, *_]] = lines(shell("outcomes", acker.namespace, "farm").out)
    assert verdict == "ack"


@pytest.mark.parametrize("words", ["track {} farm a", "ack {} 7:40 --emit 1"])
def test_a_misspelt_edge_is_refused(shell: Shell, acker: Acker, words: str) -> None:
    ran = shell(*words.format(acker.namespace).split(), "--edge", "mil")
    assert (ran.code, ran.out) == (2, "")
    assert f"{acker.namespace} has no edge 'mil'; it has mill, shop, till" in " ".join(
        ran.err.split()
    )
    assert acker.status().pending == 0


@pytest.mark.parametrize(
    "options", [["--edge", "mill"], ["--emit", "3", "--edge", "mill", "--edge", "shop"]]
)
def test_a_wrong_number_of_edges_is_refused(shell: Shell, acker: Acker, options: list[str]) -> None:
    ran = shell("ack", acker.namespace, "7:40", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "give it once" in ran.err
    assert acker.status().pending == 0


def test_the_id_of_a_named_child_depends_on_the_salt(
    shell: Shell, acker: Acker, make_any_acker: MakeAcker
) -> None:
    """An author of names cannot compute the ids, and so cannot choose names whose ids cancel."""
    other = make_any_acker(edges=EDGES)
    command = ("7:40", "--child", "bread", "--edge", "shop")
    [[here]] = lines(shell("ack", acker.namespace, *command).out)
    assert [[here]] == lines(shell("ack", acker.namespace, *command).out)
    assert here == str(Processing("7:40", ids=acker.ids).emit(key="bread", edge="shop"))
    [[there]] = lines(shell("ack", other.namespace, *command).out)
    assert here != there


def lose_one(acker: Acker, shell: Shell) -> str:
    """Lose the message on edge shop of an expired tree; return its id."""
    [[_, message]] = lines(shell("track", acker.namespace, "farm", "sack-1", "--edge", "mill").out)
    ran = shell("ack", acker.namespace, message, "-n", "2", "--edge", "shop", "--edge", "till")
    [[lost, other]] = lines(ran.out)
    shell("ack", acker.namespace, other)
    expire(acker)
    return lost


def test_the_verdict_of_an_expired_tree_names_the_edge(shell: Shell, acker: Acker) -> None:
    anchor, _, tuple_id = lose_one(acker, shell).partition(":")
    [[verdict, reason, name, at, _, why, _]] = lines(shell("outcomes", acker.namespace, "farm").out)
    assert (verdict, reason, name, at) == ("nack", "expired", "sack-1", anchor)
    assert re.fullmatch(f"no ack on edge shop; {SENTENCE}", why)
    found = json.loads(shell("outcomes", acker.namespace, "farm", "--json").out)
    assert (found["cause"], found["edges"], found["why"]) == ("idle", ["shop"], "")
    assert found["residual"] == f"{int(tuple_id):016x}"
    assert 0 <= found["idle_ms"] <= found["age_ms"]
    # The line is what take reads.
    line = shell("outcomes", acker.namespace, "farm").out
    assert shell("take", acker.namespace, "farm", "-", stdin=line).out == "1 verdict taken\n"


def test_an_expired_block_names_the_edge_of_each_tree(shell: Shell, acker: Acker) -> None:
    mill, shop = acker.ids.code("mill"), acker.ids.code("shop")
    anchors = acker.track_block("farm", "page", [mill | 5, 0, shop | 6])
    expire(acker)
    first, done, last = lines(shell("outcomes", acker.namespace, "farm").out)
    assert first[5].startswith("no ack on edge mill; last row ")
    assert done[:2] == ["ack", "completed"]
    assert last[2] == "page#2"
    assert last[5].startswith("no ack on edge shop; last row ")
    found = json.loads(shell("outcomes", acker.namespace, "farm", "--json").out.splitlines()[2])
    assert (found["anchor"], found["slot"], found["residual"]) == (
        str(anchors[2]), 2, f"{shop | 6:016x}",
    )  # fmt: skip


def test_other_verdicts_have_no_residual(shell: Shell, acker: Acker) -> None:
    track(acker, 7, 0, "a")
    found = json.loads(shell("outcomes", acker.namespace, "t", "--json").out)
    assert [found[name] for name in ("cause", "residual", "edges", "idle_ms")] == [
        "", None, [], None,
    ]  # fmt: skip


def test_show_names_the_edges_and_the_missing_message(shell: Shell, acker: Acker) -> None:
    checksum = acker.ids.code("shop") | acker.ids.code("mill") | 40
    track(acker, 7, checksum, "sack-1")
    shown = shell("show", acker.namespace, "7").out
    assert f"checksum    {checksum:016x}\n" in shown
    assert "edges       mill, shop: an odd number of messages is outstanding on each\n" in shown
    assert f"if one message is missing, its id is 7:{checksum}\n" in shown
    assert re.search(r"last row    \d+ m?s ago\n", shown)
    found = json.loads(shell("show", acker.namespace, "7", "--json").out)
    assert (found["edges"], found["checksum"]) == (["mill", "shop"], f"{checksum:016x}")
    assert 0 <= found["idle_ms"] <= found["age_ms"]


def test_show_of_other_states_names_no_missing_message(shell: Shell, acker: Acker) -> None:
    shop = acker.ids.code("shop")
    batch = Batch()
    batch.ack(7, shop | 5)  # before its TRACK: the checksum has the ids of processed messages
    acker.apply(batch)
    anchors = acker.track_block("farm", "page", [shop | 5, 0])
    for anchor in ("7", str(anchors[1])):
        shown = shell("show", acker.namespace, anchor).out
        assert "missing" not in shown
        assert "edges" not in shown
    assert json.loads(shell("show", acker.namespace, "7", "--json").out)["edges"] == []
    in_block = shell("show", acker.namespace, str(anchors[0])).out
    assert f"its id is {anchors[0]}:{shop | 5}\n" in in_block
    assert re.search(r"last row    \d+ m?s ago in the whole block\n", in_block)


def test_find_prints_checksum_edges_and_time_of_the_last_row(shell: Shell, acker: Acker) -> None:
    checksum = acker.ids.code("shop") | acker.ids.code("mill") | 40
    track(acker, 7, checksum, "sack-1")
    acker.track_block("farm", "page", [40])
    tree, block = lines(shell("find", acker.namespace).out)
    assert tree[:4] == ["7", "open", "t", "sack-1"]
    assert tree[5:6] + tree[7:] == ["", f"{checksum:016x}", "mill,shop"]
    assert int(tree[6]) <= int(tree[4])
    assert block[5] == "1 trees"
    assert int(block[6]) <= int(block[4])
    as_json = shell("find", acker.namespace, "--json").out.splitlines()
    first, second = (json.loads(each) for each in as_json)
    assert (first["edges"], "idle_ms" in first) == (["mill", "shop"], True)
    assert second["idle_ms"] <= second["age_ms"]


def waiting(acker: Acker, *edges: str, first: int = 1) -> None:
    """Track a tree that waits on each of these edges; '' is none."""
    batch = Batch("farm")
    for number, edge in enumerate(edges, first):
        batch.track(number, f"sack-{number}", [acker.ids.code(edge) | 40])
    acker.apply(batch)


def test_status_edges_draws_where_trees_wait(shell: Shell, acker: Acker) -> None:
    waiting(acker, "shop", "shop", "mill", "")
    shown = shell("status", acker.namespace, "--edges", "--sample", "0").out
    row = r"{} +█+[▉-▏]? +{} +{}% +\d+ m?s +\d+ m?s *\n"
    assert re.search(row.format("shop", 2, 50), shown)
    assert re.search(row.format("mill", 1, 25), shown)
    assert re.search(row.format("no edge or an even number", 1, 25), shown)
    assert re.search("edge +trees share +idle +longest *\n", shown), "a terminal of 80 columns"
    assert "till" not in shown
    assert "a sample of 4 trees, of 4 pending" in shown
    assert "a sample of" not in shell("status", acker.namespace, "--sample", "0").out


def test_status_edges_counts_expired_trees_by_edge(shell: Shell, acker: Acker) -> None:
    assert "expired since" not in shell("status", acker.namespace, "--edges", "--sample", "0").out
    waiting(acker, "shop", "shop", "mill", "")
    expire(acker)
    shown = shell("status", acker.namespace, "--edges", "--sample", "0").out
    words = "expired since the namespace was created: mill 1, shop 2, no edge or an even number 1"
    assert words in shown
    found = json.loads(shell("status", acker.namespace, "--json").out)
    assert found["odd"] == {"mill": 1, "shop": 2, "till": 0, "": 1}


def test_status_edges_as_json(shell: Shell, acker: Acker) -> None:
    waiting(acker, "shop", "shop", "mill", "")
    found = json.loads(shell("status", acker.namespace, "--edges", "--json").out)["waits"]
    assert (found["sampled"], found["pending"]) == (4, 4)
    assert [(each["edge"], each["trees"], each["share"]) for each in found["edges"]] == [
        ("shop", 2, 0.5), ("mill", 1, 0.25), ("", 1, 0.25),
    ]  # fmt: skip
    for each in found["edges"]:
        assert 0 <= each["idle_ms"] <= each["max_idle_ms"]
    assert "waits" not in json.loads(shell("status", acker.namespace, "--json").out)


def test_status_edges_is_refreshed_by_watch(
    shell: Shell, acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acker_redis.cli import state

    class Clock:
        ticks = 0

        def sleep(self, seconds: float) -> None:
            self.ticks += 1
            if self.ticks == 1:
                waiting(acker, "shop")
            elif self.ticks == 2:
                waiting(acker, "mill", first=2)
            else:
                raise KeyboardInterrupt

    monkeypatch.setattr(state, "time", Clock())
    ran = shell("status", acker.namespace, "--edges", "--watch", "--json")
    found = [json.loads(line)["waits"]["edges"] for line in ran.out.splitlines()]
    assert [[each["edge"] for each in edges] for edges in found] == [["shop"], ["mill", "shop"]]


def test_status_edges_of_a_namespace_without_edges_says_how_to_get_them(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40, "a")
    shown = shell("status", acker.namespace, "--edges", "--sample", "0").out
    assert "this namespace has no edges" in shown
    assert "create NAMESPACE --edge NAME" in shown
    assert json.loads(shell("status", acker.namespace, "--edges", "--json").out)["waits"] is None


def test_status_edges_without_trees_or_rights(shell: Shell, acker: Acker) -> None:
    shown = shell("status", acker.namespace, "--edges", "--sample", "0").out
    assert "no tracked tree is open" in shown
    assert "hidden" in str(draw_edges(acker.status(), None))
    waiting(acker, "shop")
    client = acker.connection.client
    client.execute_command(
        "ACL", "SETUSER", "looker", *acl.rule("viewer", acker.namespace, "looker", "pw").split()[2:]
    )
    client.execute_command("ACL", "SETUSER", "looker", "-hscan")
    try:
        url = shell.url.replace("//", "//looker:pw@")
        ran = run("status", acker.namespace, "--edges", "--json", "--url", url)
    finally:
        client.acl_deluser("looker")
    assert json.loads(ran.out)["waits"] is None


def test_no_command_prints_the_salt(shell: Shell, acker: Acker) -> None:
    ns, salt = acker.namespace, acker.ids.salt
    lose_one(acker, shell)
    track(acker, 7, 40, "a")
    assert len(salt) == 32
    assert salt not in repr(acker.status()) + repr(acker.ids)
    for command in (
        ("status", ns),
        ("status", ns, "--json"),
        ("status", ns, "--edges", "--json"),
        ("config", "get", ns),
        ("config", "get", ns, "--json"),
        ("config", "set", ns, "high_water", "5", "--json"),
        ("create", ns, "--json", *(word for edge in EDGES for word in ("--edge", edge))),
        ("show", ns, "7", "--json"),
        ("find", ns, "--json"),
        ("outcomes", ns, "farm", "--json"),
        ("doctor", ns, "--no-canary", "--json"),
        ("rotate", ns, "--json"),
    ):
        ran = shell(*command)
        assert salt not in ran.out + ran.err, command


def test_config_set_changes_the_deadline(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(refresh="update", tick_ms=1000, deadline_ms=3000)
    ns = acker.namespace
    assert "deadline_ms     3000\n" in shell("config", "get", ns).out
    ran = shell("config", "set", ns, "deadline_ms", "60000")
    assert ran.out == f"{ns}: deadline_ms set to 60000; pending trees live up to 61 s\n"
    assert json.loads(shell("config", "get", ns, "--json").out)["deadline_ms"] == 60_000
    short = shell("config", "set", ns, "deadline_ms", "2999")
    assert short.code == 1
    assert "at least buckets * tick_ms = 3000, not 2999" in short.err
    long = shell("config", "set", ns, "tick_ms", "20001")
    assert long.code == 1
    assert "at least buckets * tick_ms = 60003, not 60000" in long.err


def test_create_with_a_deadline(make_any_acker: MakeAcker, shell: Shell) -> None:
    make_any_acker()
    ran = shell("create", "slow", "--refresh", "update", "--deadline-ms", "600000", "--json")
    config = json.loads(ran.out)["config"]
    config["edges"] = tuple(config["edges"])
    assert AckerConfig(**config) == AckerConfig(refresh="update", deadline_ms=600_000)
