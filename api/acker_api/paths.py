"""Paths that several modules use."""

V1 = "/api/v1"
"""The path prefix of the versioned API."""
SESSION = f"{V1}/session"
"""The login of a browser; it is open to callers without a token."""
PROBES = ("/livez", "/readyz", "/metrics")
"""Paths that machines request every few seconds."""
OWN = (
    *("api", "docs", "favicon.ico", "livez", "login", "metrics", "openapi.json", "readyz"),
    "static",
)
"""The first part of each path of the service."""
STATIC = "/static/"
"""Path prefix of the files of pages: the same for all callers, and cached by browsers."""
