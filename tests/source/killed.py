"""A program that may be killed at any time: records 0 .. n-1, and a file of the finished ones.

    python -m tests.source.killed URL NAMESPACE FILE N

Its bolts run in the same process. They write each processed record to ``FILE.processed`` before
they ack it. Some messages fail, some vanish. The program ends when all records are done.
"""

import random
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

from acker_redis import Acker, Backoff, Bolt, MessageId, Producer, Record, Source

Job = tuple[str, MessageId]


def main(url: str, namespace: str, file: str, count: str) -> None:
    store = Path(file)
    done = set(store.read_text().split())
    todo = [str(number) for number in range(int(count)) if str(number) not in done]
    acker, chance = Acker.from_url(url, namespace), random.Random()
    jobs: SimpleQueue[Job] = SimpleQueue()
    producer = Producer(acker)

    def send(record: Record, ids: tuple[MessageId, ...]) -> None:
        print("send", record.source_id, flush=True)
        if chance.random() < 0.02:
            raise OSError("no queue")
        jobs.put((record.source_id, ids[0]))

    def on_ack(record: Record) -> None:
        with store.open("a") as log:
            log.write(record.source_id + "\n")
        done.add(record.source_id)
        print("done", record.source_id, flush=True)

    def reload(source_id: str) -> Record | None:
        return None if source_id in done else Record(source_id, "again")

    threading.Thread(target=work, args=(store, Bolt(producer), jobs), daemon=True).start()
    with Source(
        acker, "t", send, on_ack=on_ack, reload=reload, max_pending=40, attempts=1000,
        backoff=Backoff(0.01, 0.05), poll=0.01,
    ) as source:  # fmt: skip
        for source_id in todo:
            source.emit(source_id, "new")
        source.join()
    print("all is done", flush=True)


def work(store: Path, bolt: Bolt, jobs: "SimpleQueue[Job]") -> None:
    chance = random.Random()
    while True:
        source_id, message_id = jobs.get()
        try:
            with bolt.process(message_id) as t:
                if chance.random() < 0.1:
                    raise ValueError("no such address")
                child = t.emit()
            with bolt.process(child), store.with_suffix(".processed").open("a") as log:
                log.write(source_id + "\n")
        except ValueError:
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
