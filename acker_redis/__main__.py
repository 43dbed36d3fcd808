"""``acker-redis`` and ``python -m acker_redis``."""

import sys

from acker_redis.errors import how_to_install


def main() -> None:
    """Run the command line, or exit with the name of the extra to install."""
    try:
        from acker_redis import cli
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"the command line needs {error.name}: run {how_to_install('cli')}")
    cli.main()


if __name__ == "__main__":
    main()
