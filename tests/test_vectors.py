"""The vectors of ``tests/vectors``: current, right, and able to tell right from wrong."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from acker_redis import commands, scripts
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError, ConfigError, InvalidBatchError
from tests.vectors import make, plain
from tests.vectors.operations import batch_of, calls_of, wire
from tests.vectors.run import Mismatch, run

Json = Any
FILES = {path.stem: json.loads(path.read_bytes()) for path in sorted(make.HERE.glob("*.json"))}
VECTORS = {
    f"{topic}: {vector['name']}": vector
    for topic, file in FILES.items()
    for vector in file["vectors"]
}
BATCHES = {
    f"{name}, step {number}": (vector, step)
    for name, vector in VECTORS.items()
    for number, step in enumerate(vector["steps"])
    if "apply" in (step.get("do") or {})
}


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(server.url) as connected:
        yield connected
        connected.flushall()


def test_files_are_what_make_makes() -> None:
    assert make.stale() == []


def test_check_names_a_file_that_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make, "HERE", tmp_path)
    assert make.main(check=False) == 0
    assert make.main(check=True) == 0
    chains = tmp_path / "chains.json"
    chains.write_text(chains.read_text().replace("s1", "s2", 1))
    (tmp_path / "flags.json").unlink()
    (tmp_path / "gone.json").write_text("{}")
    capsys.readouterr()
    assert make.main(check=True) == 1
    words = capsys.readouterr().out.split()
    assert [w for w in words if w.endswith(".json")] == ["chains.json", "flags.json", "gone.json"]


@pytest.mark.parametrize("name", VECTORS)
def test_on_a_server(client: "redis.Redis", name: str) -> None:
    run(client, VECTORS[name])


@pytest.mark.parametrize("name", VECTORS)
def test_python_client_sends_these_bytes(name: str) -> None:
    vector = VECTORS[name]
    config = AckerConfig(**vector["config"])
    for step in vector["steps"]:
        do = step.get("do")
        if not do:
            continue
        if step.get("refused"):
            with pytest.raises((InvalidBatchError, ConfigError)):
                batch_of(do["apply"])
            assert step["calls"] == []
            continue
        calls = calls_of(do, config, vector["namespace"])
        made = [(c.script, [*map(wire, c.keys)], [*map(wire, c.args)]) for c in calls]
        sent = [
            (c["script"], c["keys"], [arg for arg in c["argv"] if arg is not None])
            for c in step["calls"]
        ]
        if "take" in do:  # shards where nothing waits are not asked
            made = [call for call in made if call in sent]
        if any(is_error(call) for call in step["calls"]):  # nor those behind a refusal
            made = made[: len(sent)]
        assert made == sent


@pytest.mark.parametrize("name", [n for n, (_, step) in BATCHES.items() if "refused" not in step])
def test_bytes_follow_from_the_page_alone(name: str) -> None:
    vector, step = BATCHES[name]
    shards = vector["config"]["shards"]
    calls = plain.apply_calls(step["do"]["apply"], shards, vector["namespace"])
    sent = [(call["keys"], call["argv"]) for call in step["calls"]]
    assert calls[: len(sent)] == sent
    assert len(calls) == len(sent) or is_error(step["calls"][-1])


@pytest.mark.parametrize("name", VECTORS)
def test_errors_of_the_vectors_have_a_class(name: str) -> None:
    for step in VECTORS[name]["steps"]:
        for call in filter(is_error, step.get("calls", [])):
            error = commands.parse_error(f"ACKER {call['reply']['error']} words")
            assert error is not None
            assert type(error) is not AckerError


def test_every_error_code_has_a_vector() -> None:
    calls = [c for v in VECTORS.values() for s in v["steps"] for c in s.get("calls", [])]
    assert {c["reply"]["error"] for c in calls if is_error(c)} == set(commands._KINDS)


def test_no_number_of_64_bits_is_a_json_number() -> None:
    """Many a parser makes a double of it."""

    def numbers(value: Json) -> Iterator[int]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from numbers(item)
        elif isinstance(value, int | float):
            assert not isinstance(value, float)
            yield value

    assert max(map(abs, numbers(FILES))) <= 10**12


# Running checksums, worked out by hand: no code of ours has computed them. None: complete.
BY_HAND: dict[str, list[int | None]] = {
    "chains: chain": [0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, None],
    "chains: fan-out": [
        0x2B7E151628AED2A6,
        0x6D60A10D53727AFA,
        0x510E527FADE682D1,
        None,
    ],
    "chains: four bits": [0b0011, 0b0100, 0b0001, 0b1111, None],
    # Complete after the fifth row, and two messages 5 are outstanding; then they begin a
    # record without a tree.
    "diamonds: diamond, message 5 sent twice": [3, 1, 7, 1, None, 5, 0],
    "diamonds: diamond, an id for each message": [3, 1, 7, 1, 3, 6, None],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_running_checksums_by_hand(name: str) -> None:
    """``test_on_a_server`` then holds the server to the same."""
    found: list[int | None] = []
    for step in VECTORS[name]["steps"]:
        if "apply" in step["do"]:
            checksums = [int(checksum, 16) for checksum in step["checksums"].values()]
            acked = [outcome[1:3] == ["ack", "completed"] for outcome in step["outcomes"]]
            assert len(checksums) + len(acked) == 1
            found.append(checksums[0] if checksums else None)
    assert found == BY_HAND[name]


@pytest.mark.parametrize("topic", ["chains", "folding", "sixty_four_bits", "several_trees"])
def test_whoever_keeps_the_rules_breaks_none(topic: str) -> None:
    assert not any("breaks_rule" in vector for vector in FILES[topic]["vectors"])


def test_each_rule_is_broken_once_at_least() -> None:
    assert {v["breaks_rule"] for v in VECTORS.values() if "breaks_rule" in v} == {1, 2, 3}


def other(text: str) -> str:
    """Hex with one bit changed."""
    return text[:-1] + f"{int(text[-1], 16) ^ 1:x}"


def _delta(v: Json) -> None:
    argv = v["steps"][2]["calls"][0]["argv"]
    argv[4] = other(argv[4])


def _anchor(v: Json) -> None:
    argv = v["steps"][2]["calls"][0]["argv"]
    argv[3] = other(argv[3])


def _flags(v: Json) -> None:
    v["steps"][2]["calls"][0]["argv"][2] = "04"


def _reply(v: Json) -> None:
    v["steps"][2]["calls"][0]["reply"][5] += 1


def _rows(v: Json) -> None:
    v["steps"][1]["calls"][0]["reply"][7] = {"hex": "0000"}


def _error(v: Json) -> None:
    v["steps"][2]["calls"][0]["reply"] = {"error": "ARGS"}


def _verdict(v: Json) -> None:
    v["steps"][3]["outcomes"][0][1] = "nack"


def _source(v: Json) -> None:
    v["steps"][3]["outcomes"][0][4] = "s2"


def _no_outcome(v: Json) -> None:
    v["steps"][3]["outcomes"] = []


def _one_outcome_more(v: Json) -> None:
    v["steps"][1]["outcomes"] = [["t", "touch", "reset", "1f2e3d4c5b6a7988", "s1", ""]]


def _checksum(v: Json) -> None:
    sums = v["steps"][1]["checksums"]
    sums["1f2e3d4c5b6a7988"] = other(sums["1f2e3d4c5b6a7988"])


def _record_left(v: Json) -> None:
    v["state"][0]["pending"][0]["1f2e3d4c5b6a7988"] = {
        "checksum": "0" * 16, "failed": False, "task": "t", "text": "s1",
    }  # fmt: skip


def _counter(v: Json) -> None:
    v["state"][0]["counters"]["orphaned"] = 1


def _backlog(v: Json) -> None:
    v["state"][0]["backlog"] = {"t": 0}


def _fence(v: Json) -> None:
    v["state"][0]["fences"][0] = {"p": "1:"}


def _step_lost(v: Json) -> None:
    del v["steps"][2]


def _step_twice(v: Json) -> None:
    v["steps"].insert(2, v["steps"][2])


CORRUPTIONS = [
    _delta, _anchor, _flags, _reply, _rows, _error, _verdict, _source, _no_outcome,
    _one_outcome_more, _checksum, _record_left, _counter, _backlog, _fence, _step_lost,
    _step_twice,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__name__.strip("_"))
def test_a_corrupted_vector_fails(client: "redis.Redis", corrupt: Callable[[Json], None]) -> None:
    vector = copy.deepcopy(VECTORS["chains: chain"])
    corrupt(vector)
    with pytest.raises(Mismatch):
        run(client, vector)


def test_an_error_that_changes_something_fails(
    client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner looks at all keys before and after each refusal."""
    refuse = "return redis.error_reply('ACKER NAMESPACE words')"
    write = f"redis.call('HSET', KEYS[2], 'shard', 1) {refuse}"
    for source, words in ((refuse, None), (write, "keys after an error")):
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        script = scripts.Script("apply", source.encode(), digest)
        monkeypatch.setattr(scripts, "load", lambda _, script=script: script)
        vector = VECTORS["refusals: NAMESPACE"]
        if words:
            with pytest.raises(Mismatch, match=words):
                run(client, vector)
        else:
            run(client, vector)


def is_error(call: Json) -> bool:
    """Whether a call is refused."""
    return isinstance(call["reply"], dict) and "error" in call["reply"]
