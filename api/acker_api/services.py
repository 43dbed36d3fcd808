"""What the routes share: made with the app, closed with it."""

import logging
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from acker_api.health import Readiness, judge
from acker_api.kept import Kept
from acker_api.reader import Reader, Survey
from acker_api.security import Tokens
from acker_api.settings import ApiSettings
from acker_redis.logs import Event
from acker_redis.settings import Settings

log = logging.getLogger("acker_api")

READINESS_KEPT = 1.0
"""Seconds for which an answer of ``/readyz`` is kept: probes do not load Redis."""


@dataclass(frozen=True)
class Services:
    """What the routes use."""

    settings: ApiSettings
    tokens: Tokens
    reader: Reader
    readiness: Kept[Readiness]
    scrape: Kept[Survey]
    """For ``/metrics``: kept for no time, but scrapes at once share one survey."""

    @classmethod
    def of(cls, settings: Settings, api_settings: ApiSettings) -> "Services":
        """Services for one app; nothing is sent yet.

        Raises ConfigError for a URL that cannot be, a token that is weak or cannot be read.
        """
        tokens = Tokens.of(api_settings)
        reader = Reader(
            settings.connect_async(), api_settings.answer_within, api_settings.scrape_within
        )

        was_ready = True

        async def readiness() -> Readiness:
            nonlocal was_ready
            found = judge(await reader.survey(), api_settings.ready_rotation)
            if was_ready and not found.ready:
                log.warning(Event("not_ready", why=str(found)))
            elif found.ready and not was_ready:
                log.info(Event("ready", namespaces=found.namespaces))
            was_ready = found.ready
            return found

        return cls(
            api_settings,
            tokens,
            reader,
            Kept(readiness, READINESS_KEPT),
            Kept(lambda: reader.survey(oldest=True, scripts=True)),
        )

    async def close(self) -> None:
        """End what is under way and close the connections."""
        await self.readiness.close()
        await self.scrape.close()
        await self.reader.close()


def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Shared = Annotated[Services, Depends(_services)]
"""The services, for a route."""
