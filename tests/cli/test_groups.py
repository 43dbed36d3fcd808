"""Completion groups in a shell: the groups of a namespace, and the records of one."""

import json

from acker_redis import Acker, Source
from tests.cli.support import Shell
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts


def with_group(acker: Acker) -> None:
    """A sealed group of which a is acked, b has failed, and c is open."""
    bolts = Bolts(acker)
    source = Source(acker, "t", bolts.send, attempts=1, on_group=print, on_ack=lambda record: None)
    with source.group("import") as group:
        for id_ in "abc":
            group.emit(id_)
    sent = bolts.sent
    bolts.sent = sent[:1]
    bolts.ack()
    bolts.sent = sent[1:2]
    bolts.fail("no such address")
    source.step()


def test_groups_show_their_open_and_failed_records(make_any_acker: MakeAcker, shell: Shell) -> None:
    acker = make_any_acker()
    with_group(acker)
    ns = acker.namespace
    assert shell("groups", ns).out == "t\timport\tsealed\t3\t0\t0\n"
    lines = shell("groups", ns, "t", "import").out.splitlines()
    assert lines == ["open\tc\t", "failed\tb\tfailed: no such address"]
    found = json.loads(shell("groups", ns, "t", "import", "--json").out)
    assert (found["open"], found["acked"], found["failed"]) == (1, 1, 1)
    assert (found["state"], found["open_records"]) == ("sealed", ["c"])
    assert json.loads(shell("groups", ns, "--json").out)["groups"][0]["records"] == 3
    limited = shell("groups", ns, "t", "import", "--limit", "0")
    assert (limited.out, "2 more" in limited.err) == ("", True)


def test_forgotten_group_is_gone_and_unknown_ones_are_an_error(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker()
    with_group(acker)
    ns = acker.namespace
    assert shell("groups", ns, "t", "import", "--forget").code == 0
    assert shell("groups", ns).out == ""
    unknown = shell("groups", ns, "t", "import")
    assert (unknown.code, "has no group import" in unknown.err) == (1, True)
    assert shell("groups", ns, "t").code == 1
    assert shell("groups", "missing").code == 1
