"""``acker-redis`` and ``python -m acker_redis``."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from acker_redis import cli
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"the command line needs {error.name}; pip install 'acker-redis[cli]'")
    cli.main()


if __name__ == "__main__":
    main()
