"""The clients for threads; each has an asyncio twin of the same name in ``aio``.

It may import ``transport`` and the wings below, and never ``aio``. Begin with ``client.py``
(Acker), ``source.py`` and ``bolt.py``. ``connection.py`` runs the flows.
"""
