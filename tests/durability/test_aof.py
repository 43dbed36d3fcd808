"""The append-only log: Redis is killed under load, and restarts from all or most of the log."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary
from acker_redis.protocol import commands
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.durability.load import Books, Load
from tests.durability.servers import ALWAYS, EVERY_SECOND, Kept
from tests.support import tick, total
from tests.waiting import LIMIT

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=1_000_000, shards=2, publish=False)
KILLS, MAX_KILLS = 8, 60


def opened(server: Kept) -> Acker:
    return Acker.from_url(server.url, "n", retry_for=LIMIT)


def killed_under_load(
    server: Kept, enough: Callable[[Acker], bool]
) -> tuple[Books, dict[str, int]]:
    """Kill the server at least KILLS times, until ``enough``; return the books and counters."""
    with opened(server) as acker:
        acker.create(CONFIG)
        with Load(server.url, acker) as load:
            for kills in itertools.count(1):
                load.go_on(2)
                server.kill()
                server.start()
                if kills >= KILLS and (kills == MAX_KILLS or enough(acker)):
                    break
            load.go_on(2)
        return load.books, load.finish()


def repeats(acker: Acker) -> bool:
    """Return whether a retried batch was already on disk."""
    return acker.status().counters["repeated"] > 0


def test_kill_under_load_with_fsync_always_loses_nothing(
    binary: ServerBinary, directory: Path
) -> None:
    """No answered call is lost, no call is applied twice, and no verdict is reported twice."""
    with Kept(binary, directory, *ALWAYS) as server:
        books, counted = killed_under_load(server, repeats)
    assert books.wrong() == {}
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0
    assert counted["tracked"] == len(books.verdicts) > 500
    assert counted["acked"] == len(books.done)
    assert counted["repeated"] > 0, "some batches in doubt were on disk"


@pytest.mark.parametrize("binary", ["path"], indirect=True)
def test_load_without_fences_is_detected(
    binary: ServerBinary, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: without fences a retried batch is applied twice."""
    for name in ("apply", "apply_blocks"):
        fenced = getattr(commands, name)
        monkeypatch.setattr(
            commands, name, lambda keys, rows, fence, fenced=fenced: fenced(keys, rows, None)
        )
    wrong: Counter[str] = Counter()
    # It is chance whether a kill meets a call that is on disk but not answered.
    for number in range(10):
        with Kept(binary, directory / str(number), *ALWAYS) as server:
            books, counted = killed_under_load(server, lambda _: True)
        assert counted["repeated"] == 0
        assert not books.false_acks, "no false ack, even without fences"
        wrong = books.wrong()
        if wrong["wrong verdict"] + wrong["reported twice"]:
            return
    raise AssertionError(f"not found: {dict(wrong)}")


def test_everysec_loses_acks_of_the_last_second_but_never_acks_falsely(
    binary: ServerBinary, directory: Path
) -> None:
    """The disk lacks answered calls: their trees expire, or never get a verdict."""
    with Kept(binary, directory, *EVERY_SECOND) as server, opened(server) as acker:
        acker.create(CONFIG)
        with Load(server.url, acker) as load:
            for _ in range(3):
                load.go_on(2)
                on_disk = server.log.stat().st_size
                load.go_on(3)
                server.kill()
                with server.log.open("r+b") as log:
                    log.truncate(on_disk)
                server.start()
            load.go_on(2)
        counted = load.finish()
    books, lost = load.books, load.books.lost()
    print(f"everysec: {dict(lost)}, {counted}")
    assert not books.false_acks
    assert 0 < lost["never reported"] < lost["tracked"]
    assert lost["done, not acked"] > 0
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0


def test_truncated_log_never_acks_falsely(binary: ServerBinary, directory: Path) -> None:
    """The log ends inside a command: all earlier calls are applied, and the counters agree."""
    chance = random.Random(1)
    with Kept(binary, directory / "a", *ALWAYS) as server, opened(server) as acker:
        acker.create(CONFIG)
        with Load(server.url, acker) as load:
            load.go_on(5)
            # The state of the disk at this moment, as after a power failure.
            sockets = shutil.ignore_patterns("*.sock")
            shutil.copytree(directory / "a", directory / "b", ignore=sockets)
            done, failed = load.books.done.copy(), load.books.failed.copy()
    log = server.log.relative_to(directory / "a")
    for number in range(3):
        cut = directory / str(number)
        shutil.copytree(directory / "b", cut)
        with (cut / log).open("r+b") as file:
            file.truncate((cut / log).stat().st_size - chance.randint(1, 8000))
        books = Books(done=done, failed=failed)
        with Kept(binary, cut, *ALWAYS) as again, opened(again) as acker:
            total(acker)
            tick(acker, 3)
            books.read(acker)
            assert total(acker)["pending"] == 0
        assert not books.false_acks
        assert {reason for reasons in books.verdicts.values() for reason in reasons} > {"completed"}
