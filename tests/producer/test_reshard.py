"""A producer whose namespace is resharded loses no row that was surely not applied."""

import pytest

from acker_redis.errors import RedisUnavailableError, WrongShardError
from acker_redis.ops.reshard import Progress, reshard
from tests.producer.conftest import MakeRig
from tests.producer.rig import acks_of, tracks
from tests.support import total


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_refused_batch_is_packed_again_for_the_new_shards(
    make_rig: MakeRig, before: int, after: int
) -> None:
    rig = make_rig(shards=before)
    producer, rows = rig.producer(linger=0), tracks(50)
    producer.add(rows)
    producer.add(acks_of(rows))
    producer.flush()
    assert len(list(rig.direct.outcomes("t"))) == 50
    reshard(rig.direct, after)
    more = tracks(50)
    producer.add(more)
    producer.add(acks_of(more))
    producer.flush()
    assert rig.given_up == []
    counted = total(rig.direct)
    # The counters of removed shards are deleted.
    assert (counted["pending"], counted["conflict"]) == (0, 0)
    assert {o.anchor for o in rig.direct.outcomes("t")} == {row.anchor for row in more}


def test_batch_in_doubt_is_given_up_after_a_reshard(make_rig: MakeRig) -> None:
    """If it were packed again, it might be applied twice."""
    rig = make_rig()
    producer, rows = rig.producer(linger=0), tracks(20)
    producer.add(rows)
    producer.flush()
    producer.add(acks_of(rows))
    producer.flush()
    assert len(list(rig.direct.outcomes("t"))) == 20
    reshard(rig.direct, 4)
    rig.calls.errors = [RedisUnavailableError("away")]
    producer.add(tracks(20))
    with pytest.raises(WrongShardError):
        producer.flush()
    assert [rows for _, rows in rig.given_up] == [20]
    assert total(rig.direct)["tracked"] == 20


def test_track_during_a_reshard_waits_for_its_end(make_rig: MakeRig) -> None:
    rig = make_rig()
    producer, rows = rig.producer(linger=0), tracks(40)
    producer.add(rows[:20])
    producer.add(acks_of(rows[:20]))
    producer.flush()
    assert len(list(rig.direct.outcomes("t"))) == 20
    met = len(rig.calls.made)

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain":
            producer.add(rows[20:])
            rig.calls.wait_for(met + 2)  # it was refused, and is retried

    reshard(rig.direct, 4, on_progress=on_progress)
    producer.flush()
    assert rig.given_up == []
    assert total(rig.direct)["tracked"] == 40
