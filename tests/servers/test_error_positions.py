"""An error inside a script names the file and the line, on every server."""

import re

import pytest

from acker_redis import Acker, Batch
from acker_redis.errors import RedisRefusedError
from acker_redis.protocol import scripts
from acker_redis.protocol.keys import ShardKeys


def test_an_error_in_a_part_names_its_file_and_line(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.set(keys.pending(0), "no hash")
    batch = Batch("t")
    batch.track(1, "s", [2])
    with pytest.raises(RedisRefusedError) as refused:
        acker.apply(batch)
    found = re.search(r"(parts/records\.lua):(\d+)", str(refused.value))
    assert found, str(refused.value)
    lines = (scripts.directory() / found[1]).read_text().splitlines()
    assert "call('HLEN', key)" in lines[int(found[2]) - 1]
