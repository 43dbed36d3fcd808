"""The admin service of acker-redis: how every namespace stands, over HTTP and for Prometheus.

It reads; it changes nothing. ``acker-redis serve`` and ``python -m acker_api`` run it.
"""

from acker_api.app import create_app
from acker_api.security import check_bind
from acker_api.server import serve
from acker_api.settings import ApiSettings

__all__ = ["ApiSettings", "check_bind", "create_app", "serve"]
