"""A namespace whose configuration is damaged stops no rotation of another one."""

import threading

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import SchemaError
from acker_redis.ops.settings import Settings
from acker_redis.protocol.history import name_of
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.jobs import Home
from acker_redis.rotator.once import rotate_once
from acker_redis.rotator.rotator import Pace
from acker_redis.rotator.service import serve
from acker_redis.transport import bounded
from tests.conftest import MakeAcker
from tests.garbage import spoilt
from tests.rotator.test_service import Seen, seen, serving
from tests.waiting import wait_until

__all__ = ["seen"]


def test_any_field_of_a_namespace_may_be_damaged_and_the_others_tick(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis, seen: Seen
) -> None:
    first, last = make_any_acker(tick_ms=20, edges=("mill",)), make_any_acker(tick_ms=20, shards=2)
    wrong = dict(spoilt(first, "a-spoilt-"))
    with serving(any_server.url, None):
        wait_until(lambda: len(seen.all("rotates", "cannot_rotate")) > len(wrong) / 2)
        before = first.status().ticks, last.status().ticks
        wait_until(lambda: first.status().ticks > before[0] + 5)
        wait_until(lambda: last.status().ticks > before[1] + 5)
    told = {str(event.fields["namespace"]) for event in seen.all("cannot_rotate")}
    assert told <= wrong.keys(), "the others are rotated without an error"
    for name, what in wrong.items():
        if what.startswith(("b'shards'", "b'buckets'", "b'tick_ms'")) and "'3'" not in what:
            assert name in told or what.endswith(("'17'", "'300000'", "'1000000000000'")), what


@pytest.mark.parametrize("shards", ["0", "3", "2048", "300000", "1000000000000", "1e3", "", None])
def test_number_of_shards_that_no_script_writes_is_not_walked(
    make_any_acker: MakeAcker, shards: str | None
) -> None:
    acker, other = make_any_acker(), make_any_acker()
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    client.hdel(meta, "shards") if shards is None else client.hset(meta, "shards", shards)
    homes = [Home(each.connection, each.namespace) for each in (acker, other)]
    with pytest.raises(SchemaError, match="tampered with"):
        homes[0].shards()
    done = rotate_once(homes, Pace(), force=True)
    assert [(name, shard, type(error)) for name, shard, error in done.errors] == [
        (acker.namespace, None, SchemaError)
    ]
    assert other.status().ticks == 1


def test_stop_waits_for_no_configuration(make_any_acker: MakeAcker) -> None:
    stop, asked = threading.Event(), list[str]()

    class Ending(Home):
        def shards(self) -> list[ShardKeys]:
            asked.append(self.name)
            stop.set()
            return super().shards()

    acker = make_any_acker()
    homes = [Ending(acker.connection, acker.namespace) for _ in range(3)]
    assert rotate_once(homes, Pace(), stop=stop).stopped
    assert len(asked) == 1


def test_history_of_any_size_stops_no_rotator(
    make_any_acker: MakeAcker,
    any_server: EmbeddedRedis,
    monkeypatch: pytest.MonkeyPatch,
    seen: Seen,
) -> None:
    monkeypatch.setattr(bounded, "MAX_REPLY", 200_000)
    acker, other = make_any_acker(), make_any_acker()
    keys, now = ShardKeys(acker.namespace, 0), acker.status().shards[0].now_ms
    fields = {name_of("m", now + minute * 60_000): b"x" * 300_000 for minute in range(3)}
    acker.connection.client.hset(keys.history, mapping=fields)
    client = Settings.read(url=any_server.url, timeout=60).connect()
    assert serve(client, None, stop=threading.Event(), once=True) == 0
    assert [event.fields["namespace"] for event in seen.all("no_history")] == [acker.namespace]
    assert other.connection.client.exists(ShardKeys(other.namespace, 0).history)
