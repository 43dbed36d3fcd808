"""Live events for dashboards: Redis is read once for all listeners.

It may import ``shapes`` and the wings below. Begin with ``hub.py``; ``watch.py`` reads a namespace.
"""
