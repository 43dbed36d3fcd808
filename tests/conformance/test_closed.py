"""A shard that is closed for a reshard: the words of its refusal. All else is in the cases."""

import pytest

from acker_redis.errors import BacklogError
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from proof.reference.acker import Reference
from tests.conformance.conftest import MakeTarget
from tests.support import track, track_block


def test_reshard_is_reported_before_a_full_backlog(make_acker: MakeTarget) -> None:
    """Both conditions refuse the batch. Report the reshard, because it ends by itself."""
    acker = make_acker(outcomes_limit=1)
    track(acker, 1, 0)
    track_block(acker, 1, [0], task="u")
    if isinstance(acker, Reference):
        acker.reshard = True
    else:
        changes = {"reshard": Reshard(1, 4).to_wire()}
        acker.connection.run(commands.configure(ShardKeys(acker.namespace, 0), changes))
    with pytest.raises(BacklogError, match="resharding"):
        track(acker, 2, 5)
    with pytest.raises(BacklogError, match="resharding"):
        track_block(acker, 2, [5], task="u")
