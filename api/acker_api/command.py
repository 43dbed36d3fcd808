"""The entry point of ``acker-redis serve``."""

from acker_api.serving.server import serve as run
from acker_api.settings import ApiSettings
from acker_redis.operate import Settings


def serve(settings: Settings, host: str | None, port: int | None, workers: int | None) -> int:
    """Serve until SIGTERM or Ctrl-C, and return the exit code; None: from the environment."""
    return run(settings, ApiSettings.read(host=host, port=port, workers=workers))
