"""A program that may be killed at any time: completion groups of 40 records, one after the other.

    python -m tests.source.killed_groups URL NAMESPACE FOLDER MORE

It ends when MORE groups were reported since its start. Files: ``processed`` (by bolts, before the
ack), ``done`` and ``dead`` (by callbacks), ``reports`` (by ``on_group``, one JSON a line).
"""

import json
import random
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from acker_redis import Acker, Backoff, Bolt, GroupResult, MessageId, Producer, Record, Source

RECORDS = 40


def main(url: str, namespace: str, folder: str, more: str) -> None:
    store, acker = Path(folder), Acker.from_url(url, namespace)
    jobs: SimpleQueue[tuple[str, MessageId]] = SimpleQueue()
    reported, changed = reports(store), threading.Event()

    def send(record: Record, ids: tuple[MessageId, ...]) -> None:
        jobs.put((record.source_id, ids[0]))

    def note(file: str, source_id: str) -> None:
        write(store / file, source_id)
        print(file, source_id, flush=True)

    def on_group(result: GroupResult) -> None:
        write(store / "reports", json.dumps(asdict(result)))
        reported.append(asdict(result))
        print("group", result.name, flush=True)
        changed.set()

    work = threading.Thread(target=process, args=(store, Bolt(Producer(acker)), jobs), daemon=True)
    work.start()
    with Source(
        acker, "t", send, attempts=2, backoff=Backoff(0.001, 0.01), poll=0.005, on_group=on_group,
        on_ack=lambda record: note("done", record.source_id),
        dead_letter=lambda record, *_: note("dead", record.source_id),
    ) as source:  # fmt: skip
        for _ in range(int(more)):
            name = f"group-{len({each['name'] for each in reported})}"
            closed = {*lines(store / "done"), *lines(store / "dead")}
            with source.group(name) as group:
                for number in range(RECORDS):
                    if f"{name}:{number}" not in closed:
                        group.emit(f"{name}:{number}")
            while not any(each["name"] == name for each in reported):
                changed.wait(0.1)
                changed.clear()
    print("end", flush=True)


def process(store: Path, bolt: Bolt, jobs: "SimpleQueue[tuple[str, MessageId]]") -> None:
    chance = random.Random()
    while True:
        source_id, message_id = jobs.get()
        try:
            with bolt.process(message_id):
                if chance.random() < 0.2:
                    raise ValueError("no such address")
                write(store / "processed", source_id)
        except ValueError:
            continue


def write(path: Path, line: str) -> None:
    with path.open("a") as log:
        log.write(line + "\n")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def reports(store: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(store / "reports")]


if __name__ == "__main__":
    main(*sys.argv[1:])
