"""The wire: ids, bytes, calls of scripts and their replies. No I/O.

It may import ``errors`` and ``forks``, and no other wing. Begin with ``ids.py`` (anchors and tuple
ids), ``rows.py`` (what one message did) and ``commands.py`` (each script's call and reply); the
contract that they implement is ``lua/README.md``.
"""
