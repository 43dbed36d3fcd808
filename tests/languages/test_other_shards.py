"""The number of shards has changed: a client reads the configuration again, and repacks."""

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.languages.driver import Driver, DriverError
from tests.support import total, verdicts


def test_client_repacks_after_the_namespace_is_created_with_other_shards(
    driver: Driver, any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker: Acker = make_any_acker()
    driver.connect(any_server.port)
    driver.begin(acker.namespace, retry_ms=120_000)
    (gone,) = driver.ask("track", task="t", source_id="gone", emit=1)["emitted"]
    acker.drop()
    acker.create(AckerConfig(tick_ms=3_600_000, shards=16))
    # Some of these trees belong to a shard that did not exist before.
    messages = [
        driver.ask("track", task="t", source_id=f"s{n}", emit=1)["emitted"][0] for n in range(8)
    ]
    counters = total(acker)
    assert (counters["tracked"], counters["pending"], counters["conflict"]) == (8, 8, 0)
    for message in messages:
        driver.ask("work", inputs=[message], emit=[], end="ack", why="", flush=True)
    assert sorted(v[3] for v in verdicts(acker) if v[0] == "ack") == [f"s{n}" for n in range(8)]
    # Fewer shards again: the client sends rows to a shard that no longer exists.
    acker.drop()
    acker.create(AckerConfig(tick_ms=3_600_000))
    for n in range(4):
        driver.ask("track", task="t", source_id=f"f{n}", emit=1)
    assert total(acker)["pending"] == 4
    # A late ack of a tree of the dropped namespace opens no tree that could be acked.
    driver.ask("work", inputs=[gone], emit=[], end="ack", why="", flush=True)
    assert total(acker)["acked"] == 0


NO_SHARDS = ("0", "3", "2048", "300000", "1000000000000", "-1", "four", "1e3", "2 ", "9" * 400)
"""No script writes such a number of shards, and a client must not loop over it."""
NO_RING = {"buckets": ("1", "17", "1000000000", "x"), "tick_ms": ("0", "-5", "1e3", "9" * 400)}
"""Nor these, from which a client derives how long it may send a batch again."""


def test_configuration_that_no_script_writes_is_refused(
    driver: Driver, any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    right = client.hgetall(meta)
    driver.connect(any_server.port)
    said = {}
    cases = [("shards", value, known) for value in NO_SHARDS for known in (False, True)]
    cases += [(field, value, False) for field, values in NO_RING.items() for value in values]
    for field, value, known in cases:
        client.hset(meta, mapping=right)
        driver.begin(acker.namespace)
        if known:
            driver.ask("read", task="t")
        client.hset(meta, field, value)
        request = {} if field == "shards" else {"source_id": "s", "emit": 1}
        try:
            answer = driver.ask("track" if request else "read", task="t", **request)
            said[field, value, known] = str(answer)
        except DriverError as error:
            said[field, value, known] = error.code
    assert {case: code for case, code in said.items() if code != "SCHEMA"} == {}
