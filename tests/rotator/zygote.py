"""A small process with all imports done, which forks rotators and kills them on demand.

    python -m tests.rotator.zygote URL NAMESPACE KIND

On stdin: ``fork`` (the answer is the pid) or ``kill PID`` (the answer is its exit code, -9 if it
was alive until then). At the end of stdin all are killed.
"""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.jobs import Home, Pace
from acker_redis.rotator.service import serve
from acker_redis.sync.connection import Connection
from acker_redis.transport.connect import connect
from tests.waiting import LIMIT

PAUSE = 0.01
PACE = Pace(records=5, blocks=1, look_every=0.003, follow_every=1.0)


def rotate(url: str, namespace: str, kind: str) -> None:
    """Rotate until killed."""
    client = connect(url, LIMIT)
    if kind == "service":
        serve(client, [namespace], stop=threading.Event(), pace=PACE)
    home = Home(Connection(client), namespace)
    while True:
        for keys in home.shards():
            home.connection.run(commands.rotate(keys, force=False))
            drain_in_steps(client, keys, kind)
            while home.connection.run(commands.expire_blocks(keys, 1))[2]:
                pass


def drain_in_steps(client: Any, keys: ShardKeys, kind: str) -> None:
    """Do the work of expire.lua from a client, as if there were no scripts.

    It pauses between its steps, as over a slow connection, so that few kills are enough.
    """
    cursor = 0
    while client.hlen(keys.expiring):
        cursor, page = client.hscan(keys.expiring, cursor, count=50)
        rows: dict[str, list[Any]] = {}
        for anchor, record in page.items():
            task, source_id = record[20 : 20 + record[19]], record[20 + record[19] :]
            if task:
                row = [anchor.hex(), source_id.decode(), 0, ""]
                rows.setdefault(task.decode(), []).append(row)
        if kind == "removes_first":
            client.hdel(keys.expiring, *page, b"")
            time.sleep(PAUSE)
        for task, told in rows.items():
            fields = {"verdict": "nack", "reason": "expired", "n": len(told)}
            client.xadd(keys.outcomes(task), {**fields, "rows": json.dumps(told)})
            client.hincrby(keys.meta, f"backlog:{task}", len(told))
        client.hincrby(keys.meta, "expired", sum(map(len, rows.values())))
        client.hincrby(keys.meta, "orphaned", len(page) - sum(map(len, rows.values())))
        if kind == "tells_first":
            time.sleep(PAUSE)
            client.hdel(keys.expiring, *page, b"")


def main() -> None:
    """Fork and kill, on demand."""
    children: set[int] = set()

    def kill(pid: int) -> int:
        children.remove(pid)
        os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "kill":
            print(kill(int(words[0])), flush=True)
            continue
        pid = os.fork()
        if not pid:
            try:
                rotate(*sys.argv[1:])
            finally:
                os._exit(1)
        children.add(pid)
        print(pid, flush=True)
    for pid in list(children):
        kill(pid)


if __name__ == "__main__":
    main()
