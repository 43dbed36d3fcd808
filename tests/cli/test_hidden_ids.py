"""Commands whose output people share show no id of a message, and no XOR of ids."""

from tests.cli.support import Shell
from tests.conftest import MakeAcker
from tests.outstanding import World, leaks

SHOWING = {"show 7", "find", "find --json", "show 7 --json", "outcomes t --json"}
"""Commands for users who look for a lost message."""
OTHERS = (
    "status", "status --edges", "status --json", "doctor", "doctor --json", "namespaces",
    "config get", "slo", "slo --json", "history", "history --json", "groups", "outcomes t",
    "rotate --force", "touch 7:5", "fail 7:5",
)  # fmt: skip


def test_only_commands_that_look_for_messages_show_ids(
    shell: Shell, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill", "shop"), slo_ms=1000)
    world = World(acker)
    world.expire()
    world.fill()
    found = dict[str, str]()
    for words in (*sorted(SHOWING), *OTHERS):
        command, *more = words.split()
        name = [] if command == "namespaces" else [acker.namespace]
        args = [*more, *name] if command == "config" else [*name, *more]
        ran = shell(command, *args)
        assert "Usage:" not in ran.err, ran.err
        found[words] = ran.out + ran.err
    assert acker.namespace in found["namespaces"]
    assert leaks(found, world.needles()) == SHOWING
