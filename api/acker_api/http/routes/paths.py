"""Where the versioned part of the service begins."""

from acker_api.paths import V1

__all__ = ["V1"]
