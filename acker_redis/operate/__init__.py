"""The operator's API: what a program needs that shows and changes namespaces.

The admin service is built on these names and on those of ``acker_redis``, and on nothing else; a
test holds that. This wing may import all others except ``cli``. ``status.py`` is the model of a
status; ``__init__.pyi`` lists the other names, by topic. Docs: docs/reference/public-api.md.
"""

from acker_redis.lazy import public

# On first use, because the command line needs few of them.
__all__, __getattr__ = public(__name__)


def __dir__() -> list[str]:
    return __all__
