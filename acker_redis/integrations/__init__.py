"""Integrations: messages that travel with other systems carry their ids by themselves.

Most integrations need a library, which is an extra. Each may import ``aio``, ``sync``, ``flows``
and the wings below, and no other integration. Begin with ``kafka/consumer.py``.
"""
