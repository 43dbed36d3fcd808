"""Run the service with settings from the environment: ``python -m acker_api``."""

import sys

from acker_api.serving.server import serve
from acker_api.settings import ApiSettings
from acker_redis.errors import AckerError
from acker_redis.operate import Settings, complete_streams, logs, plain


def main() -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code. Write an AckerError to stderr."""
    complete_streams()
    try:
        settings = Settings.read()
        logs.set_up(settings.log_level, settings.log_format)
        return serve(settings, ApiSettings.read())
    except AckerError as error:
        sys.stderr.write(plain(f"acker-api: {error}\n"))
        return 1


if __name__ == "__main__":
    sys.exit(main())
