"""The path prefix of the versioned API."""

from acker_api.paths import V1

__all__ = ["V1"]
