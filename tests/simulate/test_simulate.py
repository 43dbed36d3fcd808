"""Seeded histories under all faults, on the reference and on a real server."""

import os
import subprocess
import sys

import pytest
import redis
from typer.testing import CliRunner, Result

from acker_redis.cli import app
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError, FenceFullError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from proof.oracle import FALSE_ACK
from proof.reference.blocks import BlockReference, BlockRow
from proof.run import play, smallest, summary
from proof.simulate import FAULTS, Played, World, parse
from proof.simulate.backends import ReferenceBackend
from proof.simulate.redis_shard import RedisShard
from tests.properties.play import share
from tests.tiers import budget

ALL = tuple(FAULTS)
TOGETHER = tuple(fault for fault in FAULTS if fault != "rotators")
"""In a drain in parts, a server chooses the parts."""
STATES = [
    "acked",
    "failed",
    "expired",
    "overflow",
    "conflict",
    "repeated",
    "orphaned",
    "lost requests",
    "lost replies",
    "duplicated requests",
    "long delays",
    "failovers",
    "batches given up",
    "sent past the horizon",
    "tracks applied again",
    "bolts died",
    "changed batches refused",
    "batches run again",
    "batches refused for the backlog",
    "clock set forward",
    "clock was back",
    "rotators away",
    "rotators died before a drain",
    "rows before their track",
    "fails before their track",
    "messages processed twice",
    "rows after the end of their tree",
    "rows that met their own repeat",
    "rows folded",
    "rows dropped above the high-water mark",
    "trees set back",
    "second verdicts",
    "trees without a verdict, after a failover",
    "trees tracked again by a new lane",
    "batches of two parts",
    "trees in blocks",
    "blocks tracked",
    "blocks complete",
    "blocks expired",
    "blocks expired in silence",
    "trees acked as their block expired",
    "blocks moved to a newer bucket",
    "blocks rejected, conflict",
    "blocks rejected, overflow",
    "blocks tracked again by a new lane",
    "blocks tracked again with a tree less",
    "blocks tracked again with an absent slot more",
    "blocks tracked with absent slots",
    "blocks complete with absent slots",
    "blocks complete in silence",
    "blocks complete except their failed trees",
    "blocks expired, some trees acked and some not",
    "blocks expired, some trees acked, not or failed",
    "holes acked",
    "slots failed again",
    "failures of absent slots",
    "failures with a TRACK that came again",
    "blocks tracked again, label",
    "blocks tracked again, touched",
    "blocks with absent slots rejected, conflict",
    "blocks with absent slots rejected, overflow",
    "rows folded into the TRACK of their block",
    "rows while their tree expires",
    "rows of blocks before their track",
    "rows of blocks after their end",
    "rows of blocks that expire",
    "old batches sent again",
    "rows of absent slots",
    "blocks tracked again while pending",
    "blocks tracked again after their end",
    "rows of blocks that are not there",
    "rows of slots that are not there",
    "rotators died before a drain of blocks",
    "lost keys, block",
    "lost keys, failed",
    "lost keys, present",
    "blocks expired without their block key",
    "blocks expired without their failed key",
    "blocks expired without their present key",
    "batches refused for a lost key",
    "batches given up for a lost key",
    "rows that a deadline left in their bucket",
    "rows moved as far as a deadline allows",
    "touches without a verdict, at a deadline",
    "expired, idle",
    "expired, deadline",
    "expired with one message missing",
    "expired with some edge named",
    "expired with no edge named",
]
"""States that the histories must reach: a history without events proves nothing."""


def clean(played: Played) -> Played:
    assert played.violation is None, "\n".join([str(played.violation), *played.trace])
    return played


def command(*args: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *args])


def test_no_promise_is_broken_on_the_reference() -> None:
    seeds = budget().seeds
    table = dict(summary(clean(play(seed, 40, ALL)) for seed in range(seeds)))
    assert table["trees"] == 40 * seeds
    for state in STATES:
        assert table.get(state, 0) >= seeds // 50, state


@pytest.mark.parametrize("fault", ["none", *ALL])
def test_no_promise_is_broken_under_a_single_fault(fault: str) -> None:
    seeds = budget().seeds // 10
    table = dict(summary(clean(play(seed, 40, parse(fault))) for seed in range(seeds)))
    assert table["acked"] > 10 * seeds
    if fault not in ("failover", "pause", "rerun", "losses"):
        assert "second verdicts" not in table


@pytest.mark.parametrize("blocks", ["none", "only"])
def test_histories_of_loose_trees_only_and_of_blocks_only(blocks: str) -> None:
    done = [clean(play(seed, 40, ALL, blocks=blocks)) for seed in range(30)]
    table = dict(summary(done))
    assert table.get("trees in blocks", 0) == (table["trees"] if blocks == "only" else 0)
    assert table["acked"] > 100


def test_real_server_and_reference_agree(server: EmbeddedRedis) -> None:
    seeds = share(server, budget().seeds // 3)
    table = dict(
        summary(clean(play(seed, 40, ALL, url=server.url, both=True)) for seed in range(seeds))
    )
    for state in ("expired, idle", "expired, deadline", "expired with some edge named"):
        assert table[state] > seeds // 2, state


def test_key_that_a_block_leaves_is_detected(
    any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(shard: RedisShard, rows: list[BlockRow], fence: Fence) -> ShardApplied:
        shard.acker.connection.client.set(shard.keys.failed(1), "x")
        return apply_blocks(shard, rows, fence)

    apply_blocks = RedisShard.apply_blocks
    monkeypatch.setattr(RedisShard, "apply_blocks", leaves)
    assert play(1, 40, (), url=any_server.url, blocks="only").kind == "keys"


def test_history_on_a_real_server_removes_its_keys(any_server: EmbeddedRedis) -> None:
    with redis.Redis.from_url(any_server.url) as client:
        before = set(client.scan_iter())
        played = clean(play(7, 40, TOGETHER, url=any_server.url))
        assert set(client.scan_iter()) == before
    assert played.digest == play(7, 40, TOGETHER).digest


def test_seed_determines_the_history_for_any_hash_seed() -> None:
    code = f"from proof.run import play; print([play(s, 40, {ALL}) for s in (3, 4)])"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    said.add(f"{[play(seed, 40, ALL) for seed in (3, 4)]}\n")
    assert len(said) == 1
    assert play(3, 40, ALL).digest != play(4, 40, ALL).digest


@pytest.mark.parametrize(
    ("blocks", "seeds"), [("some", 5), pytest.param("only", 20, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("faults", [(), ALL])
@pytest.mark.parametrize("rule", ["split", "shared", "late"])
def test_broken_rule_causes_false_acks(
    rule: str, faults: tuple[str, ...], blocks: str, seeds: int
) -> None:
    played = [play(seed, 40, faults, rule, blocks=blocks) for seed in range(seeds)]
    found = [each for each in played if each.kind == FALSE_ACK]
    assert found
    assert all(each.trace[-1].count("=ack/completed") for each in found)
    least = smallest(
        found[0], lambda seed, trees: play(seed, trees, faults, rule, blocks=blocks), seeds=1000
    )
    assert least.trees <= 2, least


def test_difference_between_backends_is_a_violation() -> None:
    class Deaf(BlockReference):
        def _row(self, row: object, task: str) -> bool:
            return False

    def make(config: AckerConfig, _: object) -> list[ReferenceBackend]:
        return [ReferenceBackend(config), ReferenceBackend(config, Deaf)]

    played = World(1, 40, (), make, blocks="none").play()
    assert played.violation
    assert played.violation.kind == "backends differ"


def test_command_prints_a_table_and_the_digest() -> None:
    once, again = command("--seed", "5"), command("--seed", "5")
    assert once.exit_code == 0
    assert once.stdout == again.stdout
    assert "acked" in once.stdout
    assert once.stdout.splitlines()[-2].startswith("seed 5: history ")
    assert once.stdout.endswith("1 histories of 40 trees: no promise was broken\n")


def test_failed_command_prints_the_command_that_replays_it() -> None:
    failed = command("--seed", "1", "--seeds", "9", "--faults", "none", "--break", "shared")
    assert failed.exit_code == 1
    assert "false ack: outstanding: messages" in failed.stdout
    assert "Last events of tree" in failed.stdout
    replay = failed.stdout.splitlines()[-1].partition("Replay: acker-redis simulate ")[2]
    assert "--break shared" in replay
    again = command(*replay.split())
    assert again.exit_code == 1
    assert again.stdout.splitlines()[-5:] == failed.stdout.splitlines()[-5:]


def test_command_runs_on_a_server(any_server: EmbeddedRedis) -> None:
    done = command("--trees", "10", "--server", any_server.url)
    assert (done.exit_code, done.exception) == (0, None)


def test_unreachable_server_is_reported_in_one_sentence() -> None:
    url = "redis://u:secret@127.0.0.1:1/0"
    args = [sys.executable, "-m", "acker_redis", "simulate", "--server", url]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("acker-redis: Redis did not answer")
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr + done.stdout


def test_unexpected_refusal_is_a_violation() -> None:
    class Full(BlockReference):
        def rotate(self, force: bool = False) -> bool:
            raise FenceFullError("full")

    played = World(6, 40, (), lambda config, _: [ReferenceBackend(config, Full)]).play()
    assert str(played.violation) == "refused: FenceFullError: full"


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="unknown fault 'rain'; use all, none, or names from: requests"
    ):
        parse("replies,rain")
    assert parse("replies, pause") == ("replies", "pause")
