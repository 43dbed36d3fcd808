"""The fixture of a folder for the demo's temporary files."""

from tests.demo.running import scratch

__all__ = ["scratch"]
