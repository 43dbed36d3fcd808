"""Paths that more than one place knows."""

V1 = "/api/v1"
"""Where the versioned part of the service begins."""
SESSION = f"{V1}/session"
"""Where a browser logs in, which nobody can do who is known already."""
PROBES = ("/livez", "/readyz", "/metrics")
"""What is asked every few seconds, by machines."""
STATIC = "/static/"
"""Below it are files of pages: the same for everyone, and kept by browsers."""
