"""A private Redis or Valkey server for tests and demos; it ends with the process that started it.

It may import ``protocol`` and ``errors``. ``server.py`` starts the server, ``guard.py`` is the
process that ends it, ``binary.py`` chooses the executable.
"""

from acker_redis.embedded.binary import ServerBinary, find_server
from acker_redis.embedded.server import EmbeddedRedis

__all__ = ["EmbeddedRedis", "ServerBinary", "find_server"]
