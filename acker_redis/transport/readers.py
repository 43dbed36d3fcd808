"""Names of connections that read verdicts and keep those of the last micro-batch, as Spark's do."""

from collections.abc import Iterable, Mapping

_PREFIX = "acker-outcomes"
LONGEST_IDLE = 60
"""Seconds since the last command after which a reader does not count as waiting for verdicts."""


def reader_name(namespace: str, task: str) -> str:
    """Return the name of the connection that reads the verdicts of a source.

    >>> reader_name("orders", "shop")
    'acker-outcomes:orders:shop'
    """
    return f"{_PREFIX}:{namespace}:{task}"


def waiting_readers(clients: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return namespace and source of each reader among the rows of CLIENT LIST that is not idle.

    >>> waiting_readers([{"name": "acker-outcomes:orders:shop", "idle": "0"}])
    {('orders', 'shop')}
    """
    found = set()
    for client in clients:
        prefix, _, rest = client.get("name", "").partition(":")
        namespace, _, task = rest.partition(":")
        if prefix == _PREFIX and task and int(client.get("idle", 0)) <= LONGEST_IDLE:
            found.add((namespace, task))
    return found
