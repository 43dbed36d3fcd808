"""Names of connections that read verdicts but keep the last micro-batch untaken, as Spark does."""

from collections.abc import Iterable, Mapping

_PREFIX = "acker-outcomes"
LONGEST_IDLE = 60
"""Maximum seconds since a reader's last command; longer, it does not count as waiting."""


def reader_name(namespace: str, source: str) -> str:
    """Return the name of the connection that reads the verdicts of a source.

    >>> reader_name("orders", "shop")
    'acker-outcomes:orders:shop'
    """
    return f"{_PREFIX}:{namespace}:{source}"


def waiting_readers(clients: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return namespace and source of each reader in the rows of CLIENT LIST that is not idle.

    >>> waiting_readers([{"name": "acker-outcomes:orders:shop", "idle": "0"}])
    {('orders', 'shop')}
    """
    found = set()
    for client in clients:
        prefix, _, rest = client.get("name", "").partition(":")
        namespace, _, source = rest.partition(":")
        if prefix == _PREFIX and source and int(client.get("idle", 0)) <= LONGEST_IDLE:
            found.add((namespace, source))
    return found
