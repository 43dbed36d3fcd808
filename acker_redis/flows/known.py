"""What a client knows of its namespace: the configuration, and where it moves. No I/O."""

import time

from acker_redis.flows.steps import Flow, run_until
from acker_redis.protocol import commands
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.reshard import Reshard


class Known:
    """A namespace, as it was read last; the flows of ``Flows`` build on it."""

    def __init__(self, namespace: str, retry_for: float) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.known: AckerConfig | None = None
        """The configuration, once it was read."""
        self.reshard: Reshard | None = None
        """Where the namespace moved when it was read."""

    def config(self) -> Flow[AckerConfig]:
        """As :attr:`Acker.config`."""
        known = self.known  # another thread may forget it at any time
        return known if known else (yield from self._read_config(self._deadline()))

    def read_config(self, patient: bool = True) -> Flow[AckerConfig]:
        """The configuration as the namespace says now; Redis is asked once if not ``patient``."""
        return (yield from self._read_config(self._deadline() if patient else 0.0))

    def _read_config(self, deadline: float) -> Flow[AckerConfig]:
        call = commands.status(ShardKeys(self.namespace, 0))
        reply = yield from run_until(call, deadline)
        status = commands.parse_status(reply, ShardKeys(self.namespace, 0))
        self.known, self.reshard = status.config, status.reshard
        return status.config

    def shards(self, config: AckerConfig) -> list[ShardKeys]:
        """Keys of all shards."""
        return [ShardKeys(self.namespace, shard) for shard in range(config.shards)]

    def _deadline(self) -> float:
        return time.monotonic() + self.retry_for
