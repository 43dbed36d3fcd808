"""The admin service of acker-redis: namespaces and trees over HTTP, and metrics for Prometheus.

``acker-redis serve`` and ``python -m acker_api`` run it.
"""

from acker_api.auth.hosts import check_bind
from acker_api.http.app import create_app
from acker_api.serving.server import serve
from acker_api.settings import ApiSettings

__all__ = ["ApiSettings", "check_bind", "create_app", "serve"]
