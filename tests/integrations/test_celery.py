"""Celery tasks on a real broker with a worker: acks, failures, chains, chords."""

import gc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import chain, chord, group, signals, signature

from acker_redis import Acker, AckerConfig, Batch, ConfigError, MessageId, OpenTree, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.celery import TaskTracker
from tests.integrations import celery
from tests.waiting import wait_until


class Shop(NamedTuple):
    """An app with a tracker, and a running worker of the same app."""

    app: Any
    tracker: TaskTracker
    acker: Acker
    file: Path

    def task(self, name: str, *args: Any) -> Any:
        """Return the signature of a task."""
        return self.app.tasks[name].s(*args)

    def run(self, signature: Any, edges: int | None = 1) -> tuple[str, str, set[str]]:
        """Publish a record once; return its verdict, the reason, and the steps that were done."""
        name = uuid.uuid4().hex
        source = Source(self.acker, "shop", self.tracker.send, attempts=1)
        source.emit(name, signature, edges)
        (verdict,) = source.verdicts(until_closed=True)
        assert verdict.record.source_id == name
        return verdict.verdict, verdict.why or verdict.reason, self.steps(verdict.anchor)

    def steps(self, anchor: int | str) -> set[str]:
        lines = [line.split(" ", 1) for line in self.file.read_text().splitlines()]
        return {step for who, step in lines if who == str(anchor)}


@pytest.fixture(scope="module")
def shop(any_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    file, namespace = tmp_path_factory.mktemp("celery") / "done", f"celery-{uuid.uuid4().hex[:8]}"
    file.touch()
    app, tracker = celery.make(any_server.url, namespace, file)
    tracker.acker.create(AckerConfig(edges=("price", "step", "slow")))
    worker = celery.start(any_server.url, namespace, file)
    yield Shop(app, tracker, tracker.acker, file)
    celery.stop(worker)
    tracker.close()
    tracker.acker.close()
    gc.collect()  # before the server stops: __del__ of a result talks to it


def test_task_is_acked_when_it_has_succeeded(shop: Shop) -> None:
    assert shop.run(shop.task("step", "one")) == ("ack", "completed", {"step one"})


def test_task_that_fails_fails_its_tree_with_its_name_and_words(shop: Shop) -> None:
    verdict, why, _ = shop.run(shop.task("broken"))
    assert verdict == "nack"
    assert why.startswith("broken[")
    assert why.endswith("]: ValueError: no such address")


def test_retries_are_children_of_their_task(shop: Shop) -> None:
    assert shop.run(shop.task("flaky", 2)) == ("ack", "completed", {"flaky"})


def test_tree_fails_after_the_last_retry_with_the_words_of_the_exception(shop: Shop) -> None:
    verdict, why, _ = shop.run(shop.task("flaky", 99))
    assert (verdict, why.split("]: ")[1]) == ("nack", "ConnectionError: try 2")


def canvases(task: Any) -> dict[str, tuple[Any, set[str]]]:
    """Return signatures made by ``task(name, *args)``, each with the steps that it does."""
    s = [task("step", n) for n in range(6)]
    step = [f"step {n}" for n in range(6)]

    def first(count: int) -> set[str]:
        return set(step[:count])

    parts = {"part 0", "part 1"}
    both = [task("part", 0), task("part", 1)]
    return {
        "chain": (chain(s[0], s[1], s[2]), {step[0], step[1], step[2]}),
        "group": (group(s[0], s[1]), {step[0], step[1]}),
        "group of a generator": (group(each for each in s[:2]), {step[0], step[1]}),
        "chord": (chord(both, task("ship")), {*parts, "shipped"}),
        "chord of one": (chord(both[:1], task("ship")), {"part 0", "shipped"}),
        "link": (s[0].clone().on_error(s[1]) | s[2], {step[0], step[2]}),
        "chain with a chord": (chain(s[0], group(s[1], s[2]), s[3], s[4]), first(5)),
        "chord of chains": (
            chord([chain(s[0], s[1]), chain(s[2], s[3])], s[4]), first(5)
        ),
        "chord with a chain": (chord(both, task("ship") | s[0]), {*parts, "shipped", step[0]}),
        "chord with a group": (chord(both, group(s[0], s[1])), {*parts, step[0], step[1]}),
        "chord with a chord": (
            chord(both, chord([s[0], s[1]], s[2])), {*parts, step[0], step[1], step[2]}
        ),
        "chord in a chord": (
            chord([chord([s[0], s[1]], s[2]), s[3]], s[4]), first(5)
        ),
        "chain with two chords": (
            chain(group(s[0], s[1]), s[2], group(s[3], s[4]), s[5]), first(6)
        ),
        "chord of a task": (task("price", "a"), {"priced", *parts, "shipped"}),
        "group of a task": (task("spread", 3), {"spread", step[0], step[1], step[2]}),
        "replaced": (task("replaced"), {"step instead"}),
        "replaced in a chain": (chain(task("replaced"), s[1]), {"step instead", step[1]}),
        "ignored": (task("ignored"), set()),
    }  # fmt: skip


@pytest.mark.parametrize("edges", [1, None], ids=["one message", "open tree"])
@pytest.mark.parametrize("name", canvases(lambda name, *args: signature(name, args)))
def test_all_tasks_of_a_canvas_belong_to_one_tree(shop: Shop, name: str, edges: int | None) -> None:
    made, steps = canvases(shop.task)[name]
    assert shop.run(made, edges) == ("ack", "completed", steps)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rejected", "rejected: no room"),
        ("wilful", "Retry was raised, and no retry published"),
        ("later", "ConfigError: <function add_tasks.<locals>.later"),
        ("generated", "ConfigError: <function add_tasks.<locals>.generated"),
        ("killed", "WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL)"),
        ("slow", "TimeLimitExceeded: TimeLimitExceeded(1,)"),
        ("settled", ""),
    ],
)
def test_task_that_has_no_end_of_its_own_fails(shop: Shop, name: str, why: str) -> None:
    verdict, found, _ = shop.run(shop.task(name))
    assert verdict == "nack"
    if name == "settled":
        assert found == "no such address"
    else:
        assert found.startswith(f"{name}[")
        assert found.split("]: ")[1].startswith(why)


def test_task_whose_next_task_cannot_be_published_fails(shop: Shop) -> None:
    verdict, why, _ = shop.run(chain(shop.task("unpublished"), shop.task("step", 1)))
    assert verdict == "nack"
    assert why.endswith("]: its result could not be stored, or its next task not published")


def test_task_that_is_ignored_fails_if_others_follow_it(shop: Shop) -> None:
    verdict, why, _ = shop.run(chain(shop.task("ignored"), shop.task("step", 1)))
    assert verdict == "nack"
    assert why.endswith("]: ignored: the tasks after it do not run")


def test_task_that_expires_before_it_begins_fails(shop: Shop) -> None:
    verdict, why, steps = shop.run(shop.task("step", 1).set(expires=-1))
    assert (verdict, why.split("]: ")[1], steps) == ("nack", "expired", set())


def test_task_that_is_revoked_fails(shop: Shop) -> None:
    name = uuid.uuid4().hex
    shop.app.control.revoke(name)
    verdict, why, steps = shop.run(shop.task("step", 1).set(task_id=name, countdown=0.5))
    assert (verdict, why, steps) == ("nack", f"step[{name}]: revoked", set())


def test_chord_without_its_body_is_not_acked(shop: Shop) -> None:
    """The whole header succeeds and is acked; the promise of the body holds the tree open."""
    promises: list[str] = []

    def published(body: Any, **_: Any) -> None:
        promises.append(body[2]["chord"]["options"]["headers"]["acker-chord"])

    tree = OpenTree("miscounted", ids=shop.acker.ids)
    batch = Batch("chords")
    batch.add(tree.opening)
    shop.acker.apply(batch)
    signals.before_task_publish.connect(published)
    with shop.tracker.publishing(tree):
        chord([shop.task("miscounted")] * 2, app=shop.app)(shop.task("step", 1))
    signals.before_task_publish.disconnect(published)
    batch = Batch()
    batch.add(*tree.close())
    shop.acker.apply(batch)
    promise = MessageId.parse(promises[0])
    assert promises == [str(promise)] * 2
    assert shop.acker.ids.edges_of(promise[tree.anchor]) == ("step",)
    wait_until(
        lambda: shop.acker.show(tree.anchor).checksum == promise[tree.anchor],
        "the rows of the header",
    )
    assert shop.steps(tree.anchor) == {"miscounted"}
    for _ in range(3):
        Rotator([shop.acker]).step(force=True)
    (outcome,) = shop.acker.outcomes("chords")
    assert (outcome.verdict, outcome.reason) == ("nack", "expired")


def test_tasks_without_an_id_run_untracked_with_all_that_they_publish(shop: Shop) -> None:
    shop.task("price", "a").delay()
    wanted = {"priced", "part 0", "part 1", "shipped"}
    wait_until(lambda: wanted <= shop.steps("untracked"))


def test_each_attempt_publishes_a_new_copy_of_a_canvas(shop: Shop) -> None:
    made = chord([shop.task("part", 0), shop.task("part", 1)], shop.task("ship"))
    for _ in range(2):
        assert shop.run(made)[::2] == ("ack", {"part 0", "part 1", "shipped"})


def test_record_whose_message_cannot_be_published_fails(shop: Shop) -> None:
    verdict, why, _ = shop.run(shop.task("step", object()))
    assert (verdict, why.split(":")[0]) == ("nack", "EncodeError")
    verdict, why, _ = shop.run("step")
    assert (verdict, why.split(":")[0]) == ("nack", "ConfigError")


def test_publishing_in_a_track_block_adds_to_its_tree(shop: Shop) -> None:
    source = Source(shop.acker, "shop", attempts=1)
    with source.track("import") as tree, shop.tracker.publishing(tree):
        for number in range(10):
            shop.task("step", number).delay()
    (verdict,) = source.verdicts(until_closed=True)
    assert verdict.verdict == "ack"
    assert shop.steps(verdict.anchor) == {f"step {n}" for n in range(10)}


def test_message_that_gets_no_id_fails_its_tree(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery logs what a handler of a signal raises, and publishes the message all the same."""

    def refused(self: Any, *_: Any, **__: Any) -> Any:
        raise ConnectionError("no ids")

    source = Source(shop.acker, "shop", attempts=1)
    with pytest.raises(ConnectionError), source.track("import") as tree:
        monkeypatch.setattr(OpenTree, "emit", refused)
        with shop.tracker.publishing(tree):
            shop.task("step", "no id").delay()
    monkeypatch.undo()
    (verdict,) = source.verdicts(until_closed=True)
    assert (verdict.verdict, verdict.why) == ("nack", "ConnectionError: no ids")
    wait_until(lambda: "step no id" in shop.steps("untracked"))


@pytest.mark.full
def test_chord_on_a_backend_without_counters_is_one_tree(
    any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    """Celery's task ``chord_unlock`` looks for the results, and publishes the body.

    The worker is shut down as soon as the body has run: its last rows are sent.
    """
    namespace, results = f"celery-{uuid.uuid4().hex[:8]}", f"file://{tmp_path}"
    app, tracker = celery.make(any_server.url, namespace, tmp_path / "done", result_backend=results)
    shop = Shop(app, tracker, tracker.acker, tmp_path / "done")
    shop.file.touch()
    shop.acker.create()
    source = Source(shop.acker, "shop", tracker.send, attempts=1)
    source.emit("chord", chord([shop.task("part", 0), shop.task("part", 1)], shop.task("ship")))
    source.step()
    worker = celery.start(any_server.url, namespace, shop.file, results, "lingering")
    wait_until(lambda: "shipped" in shop.file.read_text())
    celery.stop(worker)
    (verdict,) = source.verdicts(until_closed=True)
    assert verdict.verdict == "ack"
    assert shop.steps(verdict.anchor) == {"part 0", "part 1", "shipped"}
    tracker.close()
    shop.acker.close()


@pytest.mark.parametrize("name", ["one", "canvas"])
def test_eager_tasks_run_in_the_publisher_and_fail_their_record(
    name: str, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    namespace = f"celery-{uuid.uuid4().hex[:8]}"
    app, tracker = celery.make(any_server.url, namespace, tmp_path / "done", task_always_eager=True)
    shop = Shop(app, tracker, tracker.acker, tmp_path / "done")
    shop.file.touch()
    shop.acker.create()
    good, bad = shop.task("step", 1), shop.task("broken")
    if name == "canvas":
        good, bad = group([good, good], app=app), group([good, bad], app=app)
    assert shop.run(good)[:2] == ("ack", "completed")
    assert shop.run(bad)[:2] == ("nack", "ValueError: no such address")
    tracker.close()
    shop.acker.close()


def test_app_has_one_tracker(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="has a TaskTracker"):
        TaskTracker(shop.app, shop.acker)
    with pytest.raises(ConfigError, match="use it in a task"):
        _ = shop.tracker.current
