"""Standard streams: closed ones, and files that begin with a byte order mark."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.settings import read_secret
from tests.cli.support import Ran, Shell
from tests.conftest import MakeAcker
from tests.support import track
from tests.waiting import LIMIT, wait_until

BOM = "\ufeff"
CLOSED = "the caller has closed it"


def command(closed: str, *args: str, url: str) -> list[str]:
    """Return a command that closes streams, such as "<&- 2>&-", and runs the command line."""
    program = f'exec "$0" -m acker_redis "$@" {closed}'
    return ["sh", "-c", program, sys.executable, *args, "--url", url]


def run_with(closed: str, *args: str, url: str) -> Ran:
    done = subprocess.run(command(closed, *args, url=url), capture_output=True, text=True)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_nothing_is_tracked_or_taken_unseen_where_a_stream_is_closed(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, shell: Shell
) -> None:
    acker = make_any_acker()
    ns, url = acker.namespace, any_server.url
    assert run_with("2>&-", "track", ns, "shop", "a", url=url).out.startswith("a\t")
    track(acker, 7, 0, "c")
    for closed, stream, args in (
        ("<&-", "stdin", ("track", ns, "shop", "-")),
        (">&-", "stdout", ("outcomes", ns, "t", "--take")),
    ):
        ran = run_with(closed, *args, url=url)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == f"acker-redis: cannot read or write {stream}: {CLOSED}\n"
    assert shell("outcomes", ns, "t").out.startswith("ack\tcompleted\tc\t")


@pytest.mark.full
@pytest.mark.parametrize("module", ["acker_redis serve", "acker_api"])
def test_service_runs_without_standard_streams(any_server: EmbeddedRedis, module: str) -> None:
    environment = {**os.environ, "ACKER_REDIS_URL": any_server.url, "ACKER_REDIS_API_PORT": "0"}
    program = ["sh", "-c", f'exec "$0" -m {module} <&- >&- 2>&-', sys.executable]
    with subprocess.Popen(program, env=environment) as service:
        try:
            places = psutil.Process(service.pid).net_connections
            wait_until(lambda: any(each.status == psutil.CONN_LISTEN for each in places()), "it")
        finally:
            service.terminate()
        assert service.wait(LIMIT) == 0


def test_rotator_runs_without_standard_streams(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    acker = make_any_acker(tick_ms=100)
    line = command("<&- >&- 2>&-", "rotator", acker.namespace, url=any_server.url)
    with subprocess.Popen(line) as rotator:
        try:
            wait_until(lambda: acker.status().shards[0].ticks > 1, "it ticks")
            # Otherwise what a C library writes to stderr would go into the socket to Redis.
            for number in (0, 1, 2):
                assert Path(f"/proc/{rotator.pid}/fd/{number}").samefile(os.devnull)
        finally:
            rotator.terminate()
        assert rotator.wait(LIMIT) == 0


def test_byte_order_mark_is_no_part_of_the_first_line(
    make_any_acker: MakeAcker, shell: Shell, tmp_path: Path
) -> None:
    acker = make_any_acker()
    ns = acker.namespace
    lines = shell("track", ns, "t", "-", stdin=f"{BOM}order-1\r\n{BOM}order-2\r\n").out
    (first, one), (second, two) = (line.split("\t") for line in lines.splitlines())
    assert (first, second) == ("order-1", f"{BOM}order-2")  # only a file begins with a mark
    assert shell("ack", ns, "-", stdin=f"{BOM}{one}\n").code == 0
    entry = shell("outcomes", ns, "t").out
    assert shell("take", ns, "t", "-", stdin=BOM + entry).out == "1 verdict taken\n"
    for _ in range(acker.config.buckets + 1):
        shell("rotate", ns, "--force")
    file = tmp_path / "ids"
    file.write_text(f"{BOM}{two} of order-2\n")
    assert f"{two} of order-2" in shell("explain", ns, "--ids", str(file)).out
    file.write_text(f"{BOM}secret\r\n")
    assert read_secret(file, "NAME") == "secret"
