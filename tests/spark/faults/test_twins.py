"""A task and its speculative twin: the same function, in two processes at the same time."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker_redis.spark.fold import apply as spark_apply
from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.apply import Job, Sealing, Sending
from acker_redis.spark.fold.report import ShardReport
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.terms import Kind, Packed, Packer
from tests.conftest import MakeAcker
from tests.spark.conftest import url_of
from tests.spark.faults import plan
from tests.support import total
from tests.waiting import LIMIT

TREES = 3000


def twin(rows: list[Packed], job: Job, phase: Any, folder: str, answers: Any) -> None:
    os.environ[plan.VARIABLE] = folder
    plan.install()
    answers.put(list(spark_apply._work(job, phase, rows)))


def tracks(shards: int) -> list[Packed]:
    packer = Packer(shards)
    anchors = np.arange(1, TREES + 1)
    names = pa.array([f"s{i}" for i in anchors])
    return [*packer.add(Kind.TRACK, anchors, anchors + 10_000, names), *packer.finish()]


def bolts(shards: int) -> list[Packed]:
    """Return terms that ack every tree, except those with a child, and one that fails."""
    packer = Packer(shards)
    anchors = np.arange(1, TREES + 1)
    some = anchors[anchors % 10 == 0]
    whys = pa.array(["bad"])
    return [
        *packer.add(Kind.INPUT, anchors, anchors + 10_000),
        *packer.add(Kind.CHILD, some, some + 50_000),
        *packer.add(Kind.FAIL, anchors[6:7], None, whys),
        *packer.finish(),
    ]


Twins = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    """Run the function of a task twice: the first pauses at a call, the second runs to its end."""

    def run(
        rows: list[Packed], job: Job, phase: Any, where: str, at: int
    ) -> tuple[list[Any], list[Any]]:
        context = multiprocessing.get_context("spawn")
        folders = [tmp_path / f"{where}-{at}-{n}" for n in (0, 1)]
        answers = [context.Queue() for _ in folders]
        processes = []
        for folder, queue in zip(folders, answers, strict=True):
            folder.mkdir()
            args = (rows, job, phase, str(folder), queue)
            processes.append(context.Process(target=twin, args=args))
        fault = plan.plan(folders[0], where, at, "wait")
        for process in processes:
            process.start()
        fault.wait()
        second = answers[1].get(timeout=LIMIT)
        fault.go()
        first = answers[0].get(timeout=LIMIT)
        for process in processes:
            process.join(LIMIT)
        return first, second

    return run


@pytest.mark.parametrize(
    ("shards", "where", "at"),
    [(1, "applied_content", 1), (1, "send", 1), (1, "sent", 2), (4, "send", 1), (4, "sent", 2)],
)
def test_concurrent_twin_tasks_apply_each_call_once(
    make_any_acker: MakeAcker, twins: Twins, shards: int, where: str, at: int
) -> None:
    client = make_any_acker(shards=shards)
    target = Target(client.namespace, url_of(client), timeout=60)
    source = Job(target, shards, "@spark/app/source", 0, source="t")
    spark_apply.in_driver(source, tracks(shards))
    job = Job(target, shards, "@spark/app/bolt", 0)
    rows = bolts(shards)
    phase = None
    if shards > 1:
        sealed = list(spark_apply._work(job, Sealing(None), rows))
        digests = {each["shard"]: each["digest"] for each in sealed}
        turn = lanes.LaneTurn(job.lane, 0, 0, lanes.digest_of(digests.items()))
        phase = Sending(turn, None, digests)
    first, second = twins(rows, job, phase, where, at)
    done = [[ShardReport.from_json(each["report"]) for each in found] for found in (first, second)]
    calls = [sum(each.calls for each in found) for found in done]
    repeated = [sum(each.repeated for each in found) for found in done]
    assert calls[0] == calls[1]
    assert sum(repeated) == calls[0], "each call was applied by one of them"
    counters = total(client)
    opened = len([i for i in range(1, TREES + 1) if i % 10 == 0])
    assert (counters["acked"], counters["failed"]) == (TREES - opened - 1, 1)
    assert counters["repeated"] == calls[0]
    assert counters["pending"] == opened
