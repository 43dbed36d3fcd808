"""Events for dashboards: what is read once and sent to all who listen.

It may import ``shapes`` and the wings below. Begin with ``hub.py``; ``watch.py`` reads a namespace.
"""
