"""A cache of a namespace's configuration, and its reshard if one is in progress. No I/O."""

import logging
import time
from contextlib import suppress

from acker_redis.errors import AckerError, ConfigError, NamespaceNotFoundError
from acker_redis.flows.namespace_list import among, read_names
from acker_redis.flows.steps import Begin, Flow, run_until
from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.reshard import Reshard

log = logging.getLogger(__name__)

IDS_LAST = 10.0
"""Seconds for which edges and salt are used before they are read again."""
IDS_RETRY = 2.0
"""Seconds until the next attempt to read them, if Redis has not answered."""
NAMES_LAST = 10.0
"""Seconds for which the names of other namespaces are kept: a program may retry for ever."""
IDS_WAIT = 0.1
"""Share of the time that messages may wait for such attempts, while Redis hangs."""


class KnownNamespace:
    """A namespace as it was last read; the flows of ``Flows`` build on it."""

    def __init__(self, namespace: str, retry_for: float) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.known: AckerConfig | None = None
        """The cached configuration.

        None before the first read, or after an error that outdates it.
        """
        self.ids = IdMaker(was_read=False, read=self._unread)
        """Makes the ids of the namespace, as last read."""
        self._away: AckerError | None = None
        """Why the last attempt to read edges and salt has failed; None if it has not."""
        self.ids_due = 0.0
        """When to read edges and salt again, on the ``time.monotonic`` clock.

        The namespace may have been dropped, or lost, and created again with others.
        """
        self.reshard: Reshard | None = None
        """The reshard that was in progress at the last read; None if there was none."""
        self._others = "", 0.0
        """Which namespaces there are, in words, and when to read them again."""

    def config(self, fresh: bool = False) -> Flow[AckerConfig]:
        """See :attr:`Acker.config`; with ``fresh`` it is read in any case."""
        known = self.known  # another thread may set it to None at any time
        return known if known and not fresh else (yield from self._read_config(self.deadline()))

    def read_config(self, patient: bool = True) -> Flow[AckerConfig]:
        """Read the configuration from Redis; with ``patient=False`` without retries."""
        return (yield from self._read_config(self.deadline() if patient else 0.0))

    def _read_config(self, deadline: float) -> Flow[AckerConfig]:
        status = yield from self.first_status(deadline)
        self.note(status)
        return status.config

    def first_status(self, deadline: float, reports: bool = False) -> Flow[ShardStatus]:
        """Read the status of shard 0.

        If this client has never read the namespace, NamespaceNotFoundError names those that exist.
        """
        keys = ShardKeys(self.namespace, 0)
        try:
            # A client that has read the namespace knows its password: it may be rotated now.
            call = commands.status(keys, reports)
            reply = yield from run_until(call, deadline, patient=self.ids.was_read)
        except NamespaceNotFoundError as error:
            yield from self.name_others(error)
            raise
        return commands.parse_status(reply, keys)

    def name_others(self, error: NamespaceNotFoundError) -> Flow[None]:
        """Add a note to the error, unless the namespace was there, or the user may not list them.

        A note, because the admin service shows the text of an error to callers who may not know of
        other namespaces.
        """
        if self.ids.was_read:
            return
        words, due = self._others
        if time.monotonic() >= due:
            words = ""
            with suppress(AckerError):
                words = among((yield from read_names()), self.namespace)
            self._others = words, time.monotonic() + NAMES_LAST
        if words:
            error.add_note(words)

    def note(self, status: ShardStatus) -> None:
        """Keep what shard 0 says of the namespace."""
        ids = IdMaker(status.config.edges, status.salt.reveal())
        if ids != self.ids:  # one that was kept remembers what it has logged
            self.ids = ids
        self.ids_due, self._away = time.monotonic() + IDS_LAST, None
        self.known, self.reshard = status.config, status.reshard

    def learn(self, other: "KnownNamespace") -> None:
        """Take over what other flows of the same namespace have just read."""
        self.known, self.reshard = other.known, other.reshard
        self.ids, self.ids_due = other.ids, other.ids_due

    def fresh_ids(self) -> Flow[IdMaker]:
        """Return what makes the ids, at most ``IDS_LAST`` seconds old if Redis answers.

        It makes one attempt and raises nothing: while Redis is away, bolts go on with what they
        know, and do not wait for each message. Random ids without a code are right in any case.
        """
        now = time.monotonic()
        if now >= self.ids_due:
            if self._away and self.ids.was_read:
                # The last attempt failed: messages do not wait for the next one.
                self.ids_due = now + IDS_RETRY
                yield Begin(self._read_ids())
            else:
                yield from self._read_ids()
        return self.ids

    def _read_ids(self) -> Flow[None]:
        begun = time.monotonic()
        try:
            yield from self._read_config(0.0)
        except AckerError as error:
            now = time.monotonic()
            self.ids_due = max(self.ids_due, now + max(IDS_RETRY, (now - begun) / IDS_WAIT))
            if not (self.ids.was_read or self._away):
                log.warning(
                    "%s: messages that are emitted now carry no edge, because edges and salt "
                    "could not be read; a verdict cannot tell on which edge one is lost: %s",
                    self.namespace, error,
                )  # fmt: skip
            self._away = error

    def may_read_ids(self) -> None:
        """Note that Redis answers: read edges and salt with the next id, if it was away before."""
        if not self.ids.was_read:
            self.ids_due = 0.0

    def _unread(self) -> IdMaker:
        """Raise the error of a derived id whose salt is not known."""
        if self._away is None:
            raise ConfigError(
                "a derived id needs the salt of its namespace, which was not read from Redis yet: "
                "process the message in an `async with` block, or await acker.ids() before"
            )
        raise type(self._away)(
            "a derived id needs the salt of its namespace, which could not be read from Redis yet; "
            f"acker.ids() waits for it: {self._away}"
        ) from self._away

    def shards(self, config: AckerConfig) -> list[ShardKeys]:
        """Return the keys of all shards."""
        return [ShardKeys(self.namespace, shard) for shard in range(config.shards)]

    def deadline(self) -> float:
        """Return when the patience of this client ends, on the ``time.monotonic`` clock."""
        return time.monotonic() + self.retry_for
