"""Refusals of Redis that pass: a full disk, a full memory, a password or rights that change."""

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.errors import LaneError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.rows import ack_row
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from acker_redis.sync.source import Source
from acker_redis.trees.record import Backoff
from tests.conftest import binary_of
from tests.open_redis import OpenRedis
from tests.producer.rig import InThread, Rig, acks_of, tracks
from tests.support import total, verdicts
from tests.transport.proxy import proxied
from tests.waiting import LIMIT, wait_until


class Shop:
    """A server with a namespace, and a user with a password."""

    def __init__(self, server: OpenRedis, kind: str) -> None:
        self.server = server
        self.client = redis.Redis.from_url(server.url)
        self.client.execute_command("ACL", "SETUSER", "p", "on", ">one", "~*", "&*", "+@all")
        self.direct = Acker(self.client, "n")
        self.direct.create(AckerConfig(tick_ms=3_600_000))
        self.url = server.url.replace("//", "//p:one@", 1)
        self.rig = Rig(kind, self.direct, self.url)

    def refusals(self) -> int:
        """Return how often the server has replied one of the codes."""
        found = self.client.info("errorstats")
        codes = ("MISCONF", "OOM", "WRONGPASS", "NOPERM")
        return sum(int(found.get(f"errorstat_{code}", {}).get("count", 0)) for code in codes)

    def wait_for_refusals(self) -> None:
        wanted = self.refusals() + 3
        wait_until(lambda: self.refusals() >= wanted, "refusals")

    def full_disk(self) -> Callable[[], object]:
        """Let no snapshot succeed: its file cannot replace a directory."""
        self.client.config_set("save", "3600 1000000")
        taken = self.server.directory / "dump.rdb"
        taken.mkdir()
        self.save("err")

        def ends() -> None:
            taken.rmdir()
            self.save("ok")

        return ends

    def save(self, wanted: str) -> None:
        self.client.execute_command("BGSAVE")
        state = lambda: self.client.info("persistence")["rdb_last_bgsave_status"]  # noqa: E731
        wait_until(lambda: state() == wanted, f"a snapshot that ends with {wanted}")

    def full_memory(self) -> Callable[[], object]:
        self.client.config_set("maxmemory", 1)
        return lambda: self.client.config_set("maxmemory", 0)

    def other_password(self) -> Callable[[], object]:
        self.client.execute_command("ACL", "SETUSER", "p", "resetpass", ">two")
        self.client.execute_command("CLIENT", "KILL", "USER", "p")
        return lambda: self.client.execute_command("ACL", "SETUSER", "p", ">one")

    def fewer_rights(self) -> Callable[[], object]:
        self.client.execute_command("ACL", "SETUSER", "p", "-evalsha", "-eval")
        return lambda: self.client.execute_command("ACL", "SETUSER", "p", "+evalsha", "+eval")


Trouble = Callable[[Shop], Callable[[], object]]


@pytest.fixture(params=["sync", "asyncio"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with OpenRedis(binary=binary_of("default")) as server:
        shop = Shop(server, request.param)
        yield shop
        shop.rig.close()
        shop.client.close()


@pytest.mark.parametrize(
    "trouble", [Shop.full_disk, Shop.full_memory, Shop.other_password, Shop.fewer_rights]
)
def test_batch_waits_while_a_refusal_may_pass_and_is_applied_once(
    shop: Shop, trouble: Trouble
) -> None:
    producer = shop.rig.producer(linger=0, retry_for=0)
    rows = tracks(20)
    producer.add(rows[:10])
    producer.flush()
    ends = trouble(shop)
    # Acks of trees that are not tracked yet need memory.
    producer.add(acks_of(rows))
    shop.wait_for_refusals()
    assert shop.rig.given_up == []
    ends()
    producer.flush()
    producer.add(rows[10:])
    producer.flush()
    counted = total(shop.direct)
    assert (counted["acked"], counted["repeated"], counted["pending"]) == (20, 0, 0)
    assert shop.rig.given_up == []


def test_refusal_that_does_not_pass_ends_with_the_fence(shop: Shop) -> None:
    shop.direct.configure(tick_ms=100)
    producer = shop.rig.producer(linger=0, retry_for=0)
    producer.add(tracks(1))
    producer.flush()
    ends = shop.other_password()
    producer.add([ack_row(7, 40)])
    with pytest.raises(RedisRefusedError, match="user or password"):
        producer.flush()
    assert [rows for _, rows in shop.rig.given_up] == [1]
    ends()


def test_trees_to_be_tracked_at_maxmemory_are_given_up_at_once(shop: Shop) -> None:
    """Retries of them would hold up rows that free memory."""
    producer = shop.rig.producer(linger=0, retry_for=0)
    rows = tracks(5)
    producer.add(rows)
    producer.flush()
    ends = shop.full_memory()
    producer.add(tracks(1))
    with pytest.raises(RedisRefusedError, match="Raise maxmemory"):
        producer.flush()
    producer.add(acks_of(rows))
    producer.flush()
    assert total(shop.direct)["acked"] == 5
    ends()


def test_right_that_a_script_lacks_halfway_is_not_retried(shop: Shop) -> None:
    """The script may have written before; a retry would be applied again."""
    producer = shop.rig.producer(linger=0, retry_for=0)
    rows = tracks(1)
    producer.add(rows)
    producer.flush()
    shop.client.execute_command("ACL", "SETUSER", "p", "-hdel")
    before = len(shop.rig.calls.made)
    producer.add(acks_of(rows))
    with pytest.raises(RedisRefusedError, match="may not do that"):
        producer.flush()
    assert len(shop.rig.calls.made) == before + 1


@pytest.fixture
def one() -> Iterator[Shop]:
    with OpenRedis(binary=binary_of("default")) as server:
        yield Shop(server, "sync")


@pytest.mark.parametrize("trouble", [Shop.full_disk, Shop.full_memory, Shop.other_password])
def test_acker_applies_a_batch_again_while_a_refusal_may_pass(one: Shop, trouble: Trouble) -> None:
    with Acker.from_url(one.url, "n", retry_for=LIMIT) as acker:
        batch = Batch()
        batch.ack(7, 40)
        assert acker.ids.was_read
        ends = trouble(one)
        applying = InThread(lambda: acker.apply(batch))
        one.wait_for_refusals()
        ends()
        applying.join()
    assert total(one.direct)["pending"] == 1


def test_source_keeps_its_batch_in_doubt_while_its_rights_change(one: Shop) -> None:
    """It is sent again under its number; another batch would track the record again."""
    with proxied(one.server.url) as proxy:
        url = proxy.url.replace("//", "//p:one@", 1)
        with Acker.from_url(url, "n", retry_for=0) as acker:
            source = Source(acker, "t", lambda record, ids: None, backoff=Backoff(0.01, 0.01))
            source.step()
            source.emit("s")
            proxy.swallow = 1
            with pytest.raises(RedisUnavailableError):
                source.step()
            ends = one.fewer_rights()
            for _ in range(3):
                with pytest.raises(RedisRefusedError):
                    source.step()
            ends()
            wait_until(lambda: source.step() >= 0 and total(one.direct)["repeated"], "a repeat")
    counted = total(one.direct)
    assert (counted["tracked"], counted["repeated"], counted["pending"]) == (1, 1, 1)


def test_rotator_ticks_again_after_a_full_disk(one: Shop) -> None:
    (tracked,) = tracks(1)
    batch = Batch("t")
    batch.add(tracked)
    one.direct.apply(batch)
    ends = one.full_disk()
    with Acker(one.client, "n", retry_for=0) as acker:
        for _ in range(3):
            with pytest.raises(RedisUnavailableError, match="snapshot"):
                Rotator([acker]).step(force=True)
        ends()
        for _ in range(3):
            Rotator([acker]).step(force=True)
    assert [v[:2] for v in verdicts(one.direct)] == [("nack", "expired")]


def test_refused_batch_is_not_sent_again_after_its_horizon(one: Shop) -> None:
    one.direct.configure(tick_ms=50)
    with Acker.from_url(one.url, "n", retry_for=LIMIT) as acker:
        batch = Batch()
        batch.ack(7, 40)
        assert acker.ids.was_read
        ends = one.full_disk()
        with pytest.raises(RedisUnavailableError, match="snapshot"):
            acker.apply(batch)
        ends()
        # apply() returns before the horizon if its next pause would not end in time.
        horizon = time.monotonic() + acker.config.fence_ms / 1000
        wait_until(lambda: time.monotonic() > horizon, "the horizon of the batch")
        with pytest.raises(LaneError):
            acker.apply(batch)
