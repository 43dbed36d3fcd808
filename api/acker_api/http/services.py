"""Services that the routes share; created with the app, and closed with it."""

import asyncio
import logging
import sys
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from acker_api.acting.actions import Actions
from acker_api.acting.audit import Audit
from acker_api.auth.identity import Identity
from acker_api.auth.limits import Failures, Limiter, address_of
from acker_api.auth.tokens import Tokens, Who
from acker_api.live.hub import Hub
from acker_api.reading.ages import Ages
from acker_api.reading.canary import Canary, Flight
from acker_api.reading.health import Readiness, judge
from acker_api.reading.kept import Kept, KeptEach
from acker_api.reading.overview import PERIOD as JUDGED_EACH
from acker_api.reading.overview import Judged, Overview
from acker_api.reading.pulse import Pulse
from acker_api.reading.reader import Reader, Survey
from acker_api.reading.scans import SHARE, Turns
from acker_api.settings import ApiSettings, open_files
from acker_redis import OldestTree
from acker_redis.operate import Event, Readings, Settings
from acker_redis.operate.status import NamespaceStatus

log = logging.getLogger("acker_api")

READINESS_KEPT = 1.0
"""Seconds for which an answer of ``/readyz`` is cached at least: probes do not load Redis."""
READINESS_TIMES = 10.0
"""A good answer is cached for its own duration times this: anyone may ask, and the check of many
shards is expensive."""
READINESS_MOST = 10.0
"""Maximum of that time, in seconds. A bad answer is not cached longer: Redis may be back."""
OLDEST_KEPT = 2.0
"""Seconds for which the oldest tree of a namespace is cached: with 16 shards a search costs Redis
12 ms, and the state less than one."""
OLDEST_STALE = 10.0
"""Seconds more for which the old value is returned while the next is read: no caller waits."""
LOGINS = 10
"""Login attempts per minute and address."""
FILES = 4
"""Requests for files of the dashboard that a client may send, times ``rate_limit``: they come from
memory, and a page loads some 80 of them."""
WRONG_TOKENS = 60
"""Wrong tokens in a header, per minute and address."""


@dataclass(frozen=True)
class Services:
    """The services that the routes use."""

    settings: ApiSettings
    identity: Identity
    requests: Limiter
    files: Limiter
    logins: Limiter
    failures: Failures
    reader: Reader
    scans: Turns
    audit: Audit
    actions: Actions
    canary: Canary
    readiness: Kept[Readiness]
    scrape: Kept[Survey]
    """For ``/metrics``: not cached, but concurrent scrapes share one survey."""
    oldest: KeptEach[OldestTree | None]
    lately: Readings
    """Readings for rates."""
    minute: Readings
    """Readings for findings."""
    ages: Ages
    """Ages for findings."""
    judged: Kept[Judged]
    """All namespaces, judged; for callers that poll."""
    pulse: Pulse
    live: Hub

    @classmethod
    def of(cls, settings: Settings, api_settings: ApiSettings) -> "Services":
        """Return services for one app; nothing is sent to Redis yet.

        Raise ConfigError for an invalid URL, and for a token that is weak or cannot be read.
        """
        identity = Identity(
            Tokens.of(api_settings),
            api_settings.session_for,
            api_settings.https_only,
            api_settings.root_path,
        )
        for sentence in open_files(api_settings):
            log.warning(Event("open_file", why=sentence))
        client = settings.connect_async()
        reader = Reader(
            client,
            api_settings.answer_within,
            api_settings.scrape_within,
            SHARE / api_settings.workers,
        )

        canary = Canary(reader, min(api_settings.answer_within, api_settings.scrape_within))
        ages = Ages(reader.aged, sys.maxsize)
        overview = Overview(lambda: reader.survey(ages.see), ages)
        readiness = _Judge(reader, canary, api_settings)
        audit = Audit(reader, api_settings.audit_days)
        services = cls(
            settings=api_settings,
            identity=identity,
            requests=Limiter(share(api_settings.rate_limit, api_settings.workers)),
            files=Limiter(share(FILES * api_settings.rate_limit, api_settings.workers)),
            logins=Limiter(share(LOGINS, api_settings.workers)),
            failures=Failures(share(WRONG_TOKENS, api_settings.workers)),
            reader=reader,
            scans=Turns(),
            audit=audit,
            actions=Actions(reader, audit),
            canary=canary,
            readiness=Kept(readiness.look, READINESS_KEPT, longer=kept_longer),
            scrape=Kept(lambda: reader.survey(reader.all_of, scripts=True)),
            oldest=KeptEach(reader.oldest, OLDEST_KEPT, OLDEST_STALE),
            lately=Readings(),
            minute=Readings(lately=False),
            ages=Ages(reader.untaken_of),
            judged=Kept(overview.judge, JUDGED_EACH, longer=lambda judged, took: judged.every),
            pulse=Pulse(reader.ping, api_settings.answer_within),
            live=Hub(client, lambda name: services.status(name), overview.judge),
        )
        reader.moved.listens = services.live.listen_again
        return services

    async def status(self, namespace: str) -> NamespaceStatus:
        """Return the state of a namespace with its oldest tree; raises as ``Reader.status``."""
        status = await self.reader.status(namespace)
        rates, growth = self.lately.add(status), self.minute.add(status)
        pending = status.pending or status.expiring
        oldest = await self.oldest.get(namespace) if pending else None
        seen = await self.ages.see(status)
        return NamespaceStatus.of(status, oldest, growth, rates, seen.untaken, seen.recent)

    async def close(self) -> None:
        """Cancel running tasks, and close the connections."""
        await self.live.close()
        await self.pulse.close()
        await self.readiness.close()
        await self.canary.close()
        await self.scrape.close()
        await self.judged.close()
        await self.oldest.close()
        await self.reader.close()


def kept_longer(readiness: Readiness, took: float) -> float:
    """Return the seconds for which to cache an answer of ``/readyz``, by its duration."""
    return min(READINESS_MOST, READINESS_TIMES * took) if readiness.ready else 0.0


def share(limit: int, workers: int) -> int:
    """Return the share of one worker, which knows nothing of the others; no limit (0) stays 0."""
    return -(-limit // workers)


def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Shared = Annotated[Services, Depends(_services)]
"""The services, for a route."""


def client_of(services: Services, who: Who, request: Request) -> str:
    """Return by which client the streams and scans of a caller are counted."""
    by_address = services.identity.tokens.open
    return f"address {address_of(request.scope.get('client'))}" if by_address else who.name


class _Judge:
    """Checks whether the service is ready, and logs when that changes."""

    def __init__(self, reader: Reader, canary: Canary, settings: ApiSettings) -> None:
        self._reader, self._canary, self._settings = reader, canary, settings
        self._was_ready, self._was_denied = True, False

    async def look(self) -> Readiness:
        """Read all namespaces, and run a canary."""
        survey, flight = await asyncio.gather(self._reader.survey(), self._fly())
        found = judge(survey, self._settings.ready_rotation, flight)
        if flight.state == "denied" and not self._was_denied:
            log.info(Event("canary_denied", why=flight.why))
        self._was_denied = flight.state == "denied"
        if self._was_ready and not found.ready:
            log.warning(Event("not_ready", why=str(found)))
        elif found.ready and not self._was_ready:
            log.info(Event("ready", namespaces=found.namespaces))
        self._was_ready = found.ready
        return found

    async def _fly(self) -> Flight:
        return await self._canary.fly() if self._settings.ready_canary else Flight("off")
