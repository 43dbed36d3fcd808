"""The wire protocol: ids, bytes, calls of scripts and their replies. No I/O.

It may import ``errors`` and no other package. Start with ``ids.py`` (anchors and
tuple ids), ``rows.py`` (the row of a message) and ``commands.py`` (each script's call and reply).
The contract that these modules implement is ``lua/README.md``.
"""
