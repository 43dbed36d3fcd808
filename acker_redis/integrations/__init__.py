"""Integrations: messages that travel with other systems carry their ids by themselves.

Each integration needs its library, which is an extra. It may import ``aio``, ``sync``, ``flows``
and the wings below, and no other integration. Begin with ``kafka/consumer.py``.
"""
