"""A cache of a namespace's configuration, and its reshard if one is in progress. No I/O."""

import time

from acker_redis.flows.steps import Flow, run_until
from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.reshard import Reshard


class Known:
    """A namespace as it was last read; the flows of ``Flows`` build on it."""

    def __init__(self, namespace: str, retry_for: float) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.known: AckerConfig | None = None
        """The cached configuration.

        None before the first read, or after an error that outdates it.
        """
        self.ids: IdMaker = PLAIN
        """Makes the ids of the namespace; right once the configuration was read."""
        self.reshard: Reshard | None = None
        """The reshard that was in progress at the last read; None if there was none."""

    def config(self, fresh: bool = False) -> Flow[AckerConfig]:
        """See :attr:`Acker.config`; with ``fresh`` it is read in any case."""
        known = self.known  # another thread may set it to None at any time
        return known if known and not fresh else (yield from self._read_config(self._deadline()))

    def read_config(self, patient: bool = True) -> Flow[AckerConfig]:
        """Read the configuration from Redis; with ``patient=False`` without retries."""
        return (yield from self._read_config(self._deadline() if patient else 0.0))

    def _read_config(self, deadline: float) -> Flow[AckerConfig]:
        call = commands.status(ShardKeys(self.namespace, 0))
        reply = yield from run_until(call, deadline)
        status = commands.parse_status(reply, ShardKeys(self.namespace, 0))
        self.note(status)
        return status.config

    def note(self, status: ShardStatus) -> None:
        """Keep what shard 0 says of the namespace."""
        ids = IdMaker(status.config.edges, status.salt)
        if ids != self.ids:  # one that was kept remembers what it has logged
            self.ids = ids
        self.known, self.reshard = status.config, status.reshard

    def shards(self, config: AckerConfig) -> list[ShardKeys]:
        """Return the keys of all shards."""
        return [ShardKeys(self.namespace, shard) for shard in range(config.shards)]

    def _deadline(self) -> float:
        return time.monotonic() + self.retry_for
