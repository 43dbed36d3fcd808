"""The command explain names the missing messages of expired trees, from a file of all messages."""

import json
from pathlib import Path

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.cli import explain, messages
from acker_redis.ops import acl
from acker_redis.protocol.ids import new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.cli.support import Ran, Shell, run
from tests.conftest import MakeAcker

EDGES = ("mill", "shop")


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=2, edges=EDGES)


class Farm:
    """Tracks trees, and keeps a log of their messages."""

    def __init__(self, acker: Acker, file: Path, source: str = "farm") -> None:
        self.acker, self.file, self.source = acker, file, source
        self.log: list[str] = []

    def track(self, anchor: int, ids: list[int], missing: list[int], sent: bool = True) -> None:
        """Track a tree of which all messages except the missing ones are acked."""
        batch = Batch(self.source)
        batch.track(anchor, f"sack-{anchor}", ids)
        for each in set(ids) - set(missing):
            batch.ack(anchor, each)
        self.acker.apply(batch)
        self.log += [f"{anchor}:{each} flour {each}" for each in ids if sent]

    def expire(self) -> None:
        """Let all pending trees expire, and write the log."""
        for _ in range(self.acker.config.buckets):
            Rotator(self.acker).step(force=True)
        self.file.write_text("".join(f"{line}\n" for line in self.log))


@pytest.fixture
def farm(acker: Acker, tmp_path: Path) -> Farm:
    return Farm(acker, tmp_path / "sent.log")


def ids_of(acker: Acker, *edges: str) -> list[int]:
    """Return a new id for each edge."""
    return [acker.ids.draw(1)[0] | acker.ids.code(edge) for edge in edges]


def lines(ran: Ran) -> list[list[str]]:
    assert ran.code == 0, ran.err
    return [line.split("\t") for line in ran.out.splitlines()]


def named(ran: Ran) -> list[tuple[str, str, str, str]]:
    """Return the line without source and time: reason, source id, edges, line of the message."""
    found = []
    for word, source, source_id, anchor, edges, idle, line in lines(ran):
        assert source == "farm"
        assert source_id == f"sack-{anchor}"
        assert int(idle) >= 0
        found.append((word, source_id, edges, line))
    return found


def test_missing_messages_are_named_with_their_edges(
    shell: Shell, acker: Acker, farm: Farm
) -> None:
    one, two = ids_of(acker, "mill", "shop", ""), ids_of(acker, "shop", "shop", "mill", "")
    farm.track(7, one, missing=[one[1]])
    farm.track(8, two, missing=[two[0], two[1], two[3]])
    farm.track(9, one, missing=[])
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert sorted(named(ran)) == sorted(
        [
            ("found", "sack-7", "shop", f"7:{one[1]} flour {one[1]}"),
            ("found", "sack-8", "shop", f"8:{two[0]} flour {two[0]}"),
            ("found", "sack-8", "shop", f"8:{two[1]} flour {two[1]}"),
            ("found", "sack-8", "", f"8:{two[3]} flour {two[3]}"),
        ]
    )
    assert ran.err == (
        "acker-redis: named the missing messages of 2 of 2 expired trees; 7 of 10 lines belong to "
        "these trees\n"
    )
    assert acker.status().backlog == {"farm": 3}, "no verdict was taken"


def test_a_tree_that_cannot_be_explained_has_a_reason(
    shell: Shell, acker: Acker, farm: Farm
) -> None:
    """Of 200 messages some sets of four have the same XOR up to 55 bits; none is guessed."""
    none, several = ids_of(acker, "mill", "shop"), ids_of(acker, *["mill"] * 200)
    farm.track(7, none, missing=none[:1], sent=False)
    farm.track(8, several, missing=several[:4])
    anchors = acker.track_block("farm", "page", [5, 0, 6], block=3)
    acker.connection.client.delete(ShardKeys(acker.namespace, 1).block(3))
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert (ran.code, "found" in ran.out) == (1, False)
    found = [line.split("\t") for line in ran.out.splitlines()]
    assert sorted((each[0], each[2], each[3], each[4], each[6]) for each in found) == sorted(
        [
            ("none", "sack-7", "7", "mill", "0"),
            ("several", "sack-8", "8", "", "200"),
            *(
                ("unknown", f"page#{slot}", str(anchor), "", "0")
                for slot, anchor in enumerate(anchors)
            ),
        ]
    )
    assert "of 0 of 5 expired trees (" in ran.err
    for words in ("1 none", "1 several", "3 unknown"):
        assert words in ran.err


def test_json_in_and_out(shell: Shell, acker: Acker, farm: Farm) -> None:
    (lost, kept) = ids_of(acker, "shop", "mill")
    farm.track(7, [lost, kept], missing=[lost])
    farm.expire()
    sent = [
        {"acker-tuple": f"3:5,7:{kept}", "load": "flour"},
        {"load": "not anchored"},
        {"acker-tuple": None},
        {"load": "rye", "acker-tuple": f"7:{lost}"},
    ]
    stdin = "".join(f"{json.dumps(each)}\n\n" for each in sent)
    ran = shell("explain", acker.namespace, "--ids", "-", "--json", stdin=stdin)
    found = json.loads(ran.out)
    assert found.pop("age_ms") >= found.pop("idle_ms") >= 0
    assert found == {
        "found": "found",
        "source": "farm",
        "source_id": "sack-7",
        "slot": None,
        "anchor": "7",
        "cause": "idle",
        "residual": f"{lost:016x}",
        "edges": ["shop"],
        "messages": 2,
        "missing": [
            {"message": f"7:{lost}", "edges": ["shop"], "line": json.dumps(sent[3])},
        ],
    }


def test_lines_may_have_tabs_blanks_and_several_trees(
    shell: Shell, acker: Acker, farm: Farm
) -> None:
    """A message of two trees is named for both; repeated lines count once."""
    (both, one) = ids_of(acker, "shop", "mill")
    farm.track(7, [both, one], missing=[both], sent=False)
    farm.track(8, [both], missing=[both], sent=False)
    farm.log = [
        f"7:{both},8:{both}\tflour\tand rye",
        f"7:{both},8:{both} again",
        f"  7:{one}",
        "9:5",
        "  ",
    ]
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    rest = f"7:{both},8:{both}\tflour\tand rye"
    assert sorted(line.split("\t", 6)[6] for line in ran.out.splitlines()) == [rest, rest]
    assert "3 of 4 lines belong to these trees" in ran.err


def test_trees_of_a_block(shell: Shell, acker: Acker, farm: Farm) -> None:
    first, second = ids_of(acker, "mill", "shop")
    anchors = acker.track_block("farm", "page", [first ^ second, 0, first])
    farm.log = [f"{anchors[0]}:{first} a", f"{anchors[0]}:{second} b", f"{anchors[2]}:{first} c"]
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert [(each[2], each[4], each[6][-1]) for each in lines(ran)] == [
        ("page#0", "mill", "a"), ("page#0", "shop", "b"), ("page#2", "mill", "c"),
    ]  # fmt: skip


def test_verdicts_of_a_block_that_expired_twice_are_not_explained(
    shell: Shell, acker: Acker, farm: Farm
) -> None:
    """A message of the first run of a block may have been acked late, in the second run."""
    first, second, third = ids_of(acker, "mill", "shop", "mill")
    for ids in ([first, second], [third, second]):
        anchors = acker.track_block("farm", "page", ids)
        farm.expire()
    farm.log = [f"{anchors[0]}:{first} a", f"{anchors[1]}:{second} b", f"{anchors[0]}:{third} c"]
    farm.file.write_text("".join(f"{line}\n" for line in farm.log))
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    found = [line.split("\t") for line in ran.out.splitlines()]
    assert [(each[0], each[2], each[-1]) for each in found] == 2 * [
        ("several", "page#0", "2"), ("several", "page#1", "1"),
    ]  # fmt: skip
    assert "of 0 of 4 expired trees (4 several)" in ran.err


def test_absent_slots_of_a_block_are_no_expired_trees(
    shell: Shell, acker: Acker, farm: Farm
) -> None:
    (lost,) = ids_of(acker, "mill")
    anchors = acker.track_block("farm", "page", [0, 0, lost, 0], present=[1, 2])
    farm.log = [f"{anchors[2]}:{lost} a"]
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert [(each[2], each[4], each[6]) for each in lines(ran)] == [
        ("page#2", "mill", f"{anchors[2]}:{lost} a")
    ]
    assert "of 1 of 1 expired tree;" in ran.err


def test_only_the_trees_of_a_source(shell: Shell, acker: Acker, farm: Farm) -> None:
    other = Farm(acker, farm.file, "garden")
    for number, each in enumerate((farm, other), 7):
        ids = ids_of(acker, "mill")
        each.track(number, ids, missing=ids)
    farm.log += other.log
    farm.expire()
    both = lines(shell("explain", acker.namespace, "--ids", str(farm.file)))
    assert [(source, anchor) for _, source, _, anchor, *_ in both] == [
        ("farm", "7"),
        ("garden", "8"),
    ]
    one = lines(shell("explain", acker.namespace, "--ids", str(farm.file), "--source", "garden"))
    assert one == both[1:]
    absent = shell("explain", acker.namespace, "--ids", str(farm.file), "--source", "absent")
    assert (absent.code, absent.out) == (1, "")
    assert "no verdict of an expired tree waits for absent" in absent.err


def test_streams_are_read_page_by_page_and_long_files_are_not_kept_in_memory(
    shell: Shell, acker: Acker, farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "ENTRIES", 1)
    monkeypatch.setattr(messages, "IN_MEMORY", 100)
    lost = []
    for anchor in range(2, 26):
        ids = ids_of(acker, "mill", "shop")
        farm.track(anchor, ids, missing=ids[:1])
        lost.append(f"{anchor}:{ids[0]} flour {ids[0]}")
        if anchor % 5 == 0:
            farm.expire()  # an entry for each shard
    farm.expire()
    with farm.file.open("a") as file:
        file.writelines(f"{number}:{number} {'x' * 50}\n" for number in range(100, 20_100))
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert sorted(line for *_, line in named(ran)) == sorted(lost)
    assert "48 of 20,048 lines belong to these trees" in ran.err
    few = shell("explain", acker.namespace, "--ids", str(farm.file), "--limit", "5")
    assert len(named(few)) == 5
    assert "more expired trees wait; --limit raises the number of trees" in few.err
    all_ = shell("explain", acker.namespace, "--ids", str(farm.file), "--limit", "24")
    assert "--limit" not in all_.err


def test_a_namespace_without_edges(make_any_acker: MakeAcker, shell: Shell, tmp_path: Path) -> None:
    """Its ids have 63 random bits, so that larger sets are told apart."""
    acker = make_any_acker()
    farm = Farm(acker, tmp_path / "sent.log")
    ids = [new_tuple_id() for _ in range(30)]
    farm.track(7, ids, missing=ids[3:8])
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert [(edges, line) for *_, edges, line in named(ran)] == [
        ("", f"7:{each} flour {each}") for each in ids[3:8]
    ]
    [[*_, why, _]] = lines(shell("outcomes", acker.namespace, "farm"))
    assert why.startswith("no ack; last row ")


def test_a_viewer_may_explain(shell: Shell, acker: Acker, farm: Farm) -> None:
    (lost,) = ids_of(acker, "mill")
    farm.track(7, [lost], missing=[lost])
    farm.expire()
    client, words = acker.connection.client, acl.rule("viewer", acker.namespace, "looker", "pw")
    client.execute_command("ACL", "SETUSER", "looker", *words.split()[2:])
    try:
        url = shell.url.replace("//", "//looker:pw@")
        ran = run("explain", acker.namespace, "--ids", str(farm.file), "--url", url)
    finally:
        client.acl_deluser("looker")
    assert named(ran) == [("found", "sack-7", "mill", f"7:{lost} flour {lost}")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"id\tname", "line 2 of stdin: an anchored tuple is <anchor>:<tuple>, not 'id'"),
        (b"7:0", "line 2 of stdin: a tuple id is a number from 1"),
        (b"{'a': 1}", "line 2 of stdin: it is not JSON"),
        (b'{"acker-tuple": 5}', "line 2 of stdin: a message id is text"),
        (b"7:40 \xff", "line 2 of stdin is not UTF-8"),
        (b"7:40 " + b"x" * messages.MAX_LINE, "line 2 of stdin is longer than 1 MiB"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(
    shell: Shell, acker: Acker, farm: Farm, line: bytes, words: str
) -> None:
    (lost,) = ids_of(acker, "mill")
    farm.track(7, [lost], missing=[lost])
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", "-", stdin=b"9:5\n" + line)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err


def test_a_line_of_one_mebibyte_is_read(shell: Shell, acker: Acker, farm: Farm) -> None:
    (lost,) = ids_of(acker, "mill")
    farm.track(7, [lost], missing=[lost])
    line = f"7:{lost} "
    farm.log = [line + "x" * (messages.MAX_LINE - len(line))]
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert named(ran) == [("found", "sack-7", "mill", farm.log[0])]


def test_without_verdicts_or_file(shell: Shell, acker: Acker, farm: Farm) -> None:
    ids = ids_of(acker, "mill")
    farm.track(7, ids, missing=[])
    farm.expire()
    ran = shell("explain", acker.namespace, "--ids", str(farm.file))
    assert (ran.code, ran.out) == (1, "")
    assert "no verdict of an expired tree waits\n" in ran.err
    absent = shell("explain", acker.namespace, "--ids", str(farm.file) + ".1")
    assert absent.code == 1
    assert "cannot read or write" in absent.err
    assert shell("explain", acker.namespace).code == 2
