"""Output of status, show and find, as text and as JSON."""

import json
import re
import subprocess
import sys

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops import acl
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.cli.support import PATIENT, Shell, run
from tests.conftest import MakeAcker
from tests.support import row, tick, track


def put(acker: Acker, trees: dict[int, str]) -> None:
    """Track trees by their anchors, on any shard."""
    batch = Batch("t")
    for anchor, source_id in trees.items():
        batch.track(anchor, source_id, [5])
    acker.apply(batch)


def test_status_of_an_empty_namespace(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2, high_water=5)
    ns, server = acker.namespace, acker.connection.version()
    shown = shell("status", ns, "--sample", "0").out
    head = f"{ns} at {shell.url} ({server}) · 2 shards · 3 buckets of 1 h"
    assert shown.startswith(f"{head}\n")
    assert re.search(r"pending +0 trees *\n", shown)
    assert "0% of 5 (worst shard)" in shown
    assert "room for more" in shown
    assert "nothing is pending" in shown
    assert "no verdicts wait" in shown
    assert "/s" not in shown
    assert re.search(r"no tick yet; the first one is due in (1 h|59 min)", shown)
    shell("rotate", ns, "--force")
    assert "on time; the last tick was" in shell("status", ns, "--sample", "0").out


def test_status_names_the_server_and_its_own_version(server: EmbeddedRedis) -> None:
    """Valkey also reports that it is Redis 7.2.4."""
    name, version, *_ = server.description.split()
    product = name.removesuffix("-server").capitalize()
    with Acker.from_url(server.url, "named") as acker:
        acker.connection.client.flushall()
        acker.create(AckerConfig())
    shell = Shell(server)
    assert f" ({product} {version}) · " in shell("status", "named", "--sample", "0").out
    found = json.loads(shell("status", "named", "--sample", "0", "--json").out)
    assert found["server"] == {"product": product, "version": version}


def test_status_works_for_a_user_who_may_not_ask_for_the_version(server: EmbeddedRedis) -> None:
    with Acker.from_url(server.url, "named") as acker:
        client = acker.connection.client
        client.flushall()
        acker.create(AckerConfig())
        words = acl.rule("viewer", "named", "looker", "secret").split()[1:]
        client.execute_command("ACL", "SETUSER", *words)
        url = server.url.replace("redis://", "redis://looker:secret@")
        found = run("status", "named", "--sample", "0", "--json", "--url", url)
        client.acl_deluser("looker")
    assert json.loads(found.out)["server"] is None


def test_status_shows_each_bucket_and_the_oldest_tree(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker(high_water=4)
    for anchor in (1, 2, 3):
        track(acker, anchor, 5, f"record {anchor}")
        Rotator(acker).step(force=True)
    track(acker, 4, 5, "record 4")
    track(acker, 5, 5, "record 5")
    shown = shell("status", acker.namespace, "--sample", "0.01").out
    assert re.search(r"newest +█+ +2 *\n", shown)
    assert re.search(r"1 tick old +█+ +1 *\n", shown)
    assert re.search(r"2 ticks old +█+ +1 *\n", shown)
    assert "100% of 4 " in shown
    assert "sources wait" in shown
    assert "record 2 of t (anchor 2)" in shown
    assert re.search(r"expired +1 +0/s", shown)
    assert "1 for t (0% of outcomes_limit)" in shown
    assert "no tree was acked yet" in shown


def test_status_shows_latency_percentiles(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    meta = ShardKeys(acker.namespace, 0).meta
    acker.connection.client.hset(meta, mapping={"latency:9": 98, "latency:14": 2, "latency_ms": 9})
    shown = shell("status", acker.namespace, "--sample", "0").out
    assert "p50 about 387 ms, p99 about 12.3 s from the first row to the ack" in shown
    found = json.loads(shell("status", acker.namespace, "--json").out)["latency"]
    assert found["upper_ms"][:3] == [1, 2, 4]
    assert found["counts"] == [0] * 9 + [98] + [0] * 4 + [2]
    assert found["sum_ms"] == 9


def test_status_reports_a_missing_rotator(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(tick_ms=1000)
    meta = ShardKeys(acker.namespace, 0).meta
    acker.connection.client.hincrby(meta, "ticked_ms", -3_601_000)
    said = shell("status", acker.namespace, "--sample", "0").out
    assert "a tick is 1 h late: is a rotator running?" in said
    assert "problems    No rotator runs: a tick is 1 h late" in said
    assert "start a rotator, better two: acker-redis rotator" in said
    found = json.loads(shell("status", acker.namespace, "--json").out)
    assert found["lag_ms"] >= 3_600_000
    assert (found["rotator"], found["findings"][0]["id"]) == ("away", "rotator")


def test_status_as_json(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    track(acker, 2, 5, "a")
    anchors = acker.track_block("bulk", "page/1", [5, 6, 7], block=1)
    found = json.loads(shell("status", acker.namespace, "--json", "--sample", "0.01").out)
    assert (found["pending"], found["in_blocks"], found["high_water"]) == (4, 3, "ok")
    assert [shard["pending"] for shard in found["shards"]] == [[1, 0, 0], [3, 0, 0]]
    assert found["counters"]["tracked"] == 4
    assert found["rates"]["tracked"] == 0
    assert found["oldest"]["tree"]["anchor"] in ("2", str(anchors[0]))
    assert found["config"]["shards"] == 2


def test_status_watch_shows_new_trees(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    command = ("status", acker.namespace, "--watch", "--json", "--sample", "0.05")
    watch = subprocess.Popen(
        [sys.executable, "-m", "acker_redis", *command],
        stdout=subprocess.PIPE,
        env={"ACKER_REDIS_URL": shell.url, **PATIENT},
        text=True,
    )
    try:
        assert watch.stdout
        assert json.loads(watch.stdout.readline())["pending"] == 0
        track(acker, 1, 5, "a")
        while json.loads(watch.stdout.readline())["pending"] != 1:
            pass
    finally:
        watch.kill()
        watch.communicate()


def test_show(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    track(acker, 77, 0xABC, "a record")
    anchors = acker.track_block("t", "page/1", [5, 0, 7])
    batch = Batch()
    batch.fail(anchors[2], "no luck")
    acker.apply(batch)

    def show(anchor: str) -> str:
        ran = shell("show", acker.namespace, anchor)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    assert "checksum    0000000000000abc\nmissing     if one message is missing, " in show("77")
    assert "its id is 77:2748\nsource      t a record\n" in show("77")
    assert show("0x4d").startswith("anchor      77 (0x4d)\nstate       open\n")
    assert show("77:815").startswith("anchor      77 (0x4d)\n")
    block = show(hex(anchors[2]))
    assert "state       failed: its verdict has the reason\n" in block
    assert "3 trees\nopen        1: slots 0\nfailed      1\n" in block
    assert "complete; the verdict follows when its block ends" in show(str(anchors[1]))
    gone = shell("show", acker.namespace, "78")
    assert (gone.code, gone.out) == (1, "")
    assert "not pending" in gone.err
    assert shell("show", acker.namespace, "4d").code == 2


def test_show_of_a_block_with_absent_slots(make_any_acker: MakeAcker, shell: Shell) -> None:
    """An absent slot is not pending: the first tree of its block is named."""
    acker = make_any_acker()
    anchors = acker.track_block("t", "page", [0, 5, 0, 6, 0], present=[1, 2, 3])
    shown = shell("show", acker.namespace, str(anchors[1]))
    assert (shown.code, shown.err) == (0, "")
    assert "3 trees in 5 slots\nopen        2: slots 1, 3\nfailed      0\n" in shown.out
    complete = shell("show", acker.namespace, str(anchors[2]))
    assert "complete; the verdict follows when its block ends" in complete.out
    for slot in (0, 4):
        absent = shell("show", acker.namespace, str(anchors[slot]))
        assert (absent.code, absent.out) == (1, "")
        assert (
            f"anchor {anchors[slot]} is a slot without a tree, in block page of t; "
            f"the first tree of this block is {anchors[1]}\n" in absent.err
        )
        assert shell("show", acker.namespace, str(anchors[slot]), "--json").out == "null\n"
    for anchor in (anchors[4] + 1, anchors[0] + 4096):
        beyond = shell("show", acker.namespace, str(anchor))
        assert (beyond.code, beyond.out) == (1, "")
        assert "not pending: it already has its verdict" in beyond.err
    found = json.loads(shell("show", acker.namespace, str(anchors[3]), "--json").out)["block"]
    assert (found["slots"], found["open"], found["absent"]) == (5, [1, 3], [0, 4])


def test_find_shows_that_a_block_has_absent_slots(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    acker.track_block("t", "part", [0, 5, 0], present=[1])
    acker.track_block("t", "whole", [4, 5, 6])
    lines = [line.split("\t") for line in shell("find", acker.namespace).out.splitlines()]
    assert {line[3]: line[5] for line in lines} == {"part": "up to 3 trees", "whole": "3 trees"}
    found = map(json.loads, shell("find", acker.namespace, "--json").out.splitlines())
    assert {each["label"]: each["partial"] for each in found} == {"part": True, "whole": False}


def test_status_finds_the_oldest_tree_of_a_block_with_an_absent_first_slot(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    anchors = acker.track_block("t", "page", [0, 0, 5], present=[1, 2])
    found = json.loads(shell("status", acker.namespace, "--json", "--sample", "0").out)
    assert found["oldest"]["tree"]["anchor"] == str(anchors[2])
    assert (found["pending"], found["in_blocks"]) == (3, 3), "slots, not trees"
    assert found["open"] == found["counters"]["tracked"] == 2


def test_status_tells_rows_that_come_early_or_late_from_trees(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    track(acker, 2, 5, "a")
    for anchor in (3, 4):  # their trees are not tracked, or have their verdicts
        row(acker, anchor, 7)
    shown = shell("status", acker.namespace, "--sample", "0").out
    assert "1 tree, and 2 rows that came early or late" in " ".join(shown.split())
    found = json.loads(shell("status", acker.namespace, "--json", "--sample", "0").out)
    assert (found["open"], found["pending"]) == (1, 3)
    tick(acker, 2)
    acker.track_block("t", "page", [5, 0, 6])
    shown = shell("status", acker.namespace, "--sample", "0").out
    assert "4 trees, and 2 rows that came early or late, or slots" in " ".join(shown.split())
    tick(acker, 1)
    assert acker.status().open == 3
    tick(acker, 2)
    status = acker.status()
    assert (status.open, status.pending, status.counters["orphaned"]) == (0, 0, 2)


def test_show_as_json_has_ids_as_text(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    anchor = 2**62 - 1
    track(acker, anchor, 2**63 - 1, 'says "no"')
    found = json.loads(shell("show", acker.namespace, str(anchor), "--json").out)
    assert found["anchor"] == "4611686018427387903"
    assert found["checksum"] == "7fffffffffffffff"
    assert (found["source_id"], found["state"], found["block"]) == ('says "no"', "open", None)
    assert shell("show", acker.namespace, "5", "--json").out == "null\n"


def test_find(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    put(acker, {anchor: f"record {anchor % 4}" for anchor in range(1, 9)})
    acker.track_block("bulk", "page/1", [5, 6, 7], block=9)
    ran = shell("find", acker.namespace, "record 3")
    assert ran.code == 0
    lines = [line.split("\t") for line in ran.out.splitlines()]
    assert {(a, state, source, name) for a, state, source, name, *_ in lines} == {
        ("3", "open", "t", "record 3"),
        ("7", "open", "t", "record 3"),
    }
    assert "scanned 9 trees and blocks, which are all; found 2" in ran.err
    [block] = shell("find", acker.namespace, "page/1").out.splitlines()
    assert block.split("\t")[:4] == ["9", "block", "bulk", "page/1"]
    assert shell("find", acker.namespace, "absent").code == 1


def test_find_continues_at_a_cursor(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=4)
    put(acker, {anchor: f"record {anchor}" for anchor in range(1, 41)})
    found, more = set[str](), list[str]()
    while True:
        ran = shell("find", acker.namespace, "--limit", "3", "--json", *more)
        lines = ran.out.splitlines()
        assert len(lines) <= 3
        found |= {json.loads(line)["anchor"] for line in lines}
        if "--cursor" not in ran.err:
            break
        more = ["--cursor", ran.err.split()[-1]]
    assert found == {str(anchor) for anchor in range(1, 41)}


def test_find_by_prefix(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker(shards=2)
    put(acker, {1: "order-1", 2: "order-10", 3: "order-2", 4: "ord"})
    acker.track_block("bulk", "order-1/page", [40])
    ran = shell("find", acker.namespace, "order-1", "--prefix")
    assert sorted(line.split("\t")[3] for line in ran.out.splitlines()) == [
        "order-1", "order-1/page", "order-10",
    ]  # fmt: skip
    assert len(shell("find", acker.namespace, "ord", "--prefix", "-n", "1").out.splitlines()) == 1
    assert len(shell("find", acker.namespace, "order-1").out.splitlines()) == 1
    ran = shell("find", acker.namespace, "order")
    assert ran.code == 1
    assert "--prefix matches the beginning" in ran.err
    found = acker.find("order-", source="bulk", prefix=True)
    assert [block.label for block in found.blocks] == ["order-1/page"]
    assert not found.trees


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (12_345, "12.3 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
    ],
)
def test_span_formats_durations(ms: int, words: str) -> None:
    from acker_redis.cli.status_view import span

    assert span(ms) == words
