"""The reference model: the acker in plain Python. Tests compare the Lua scripts with it.

Of the package it may import ``protocol`` and ``errors`` only. Read ``acker.py`` first (loose
trees), then ``blocks.py``. ``rows.py`` packs their rows into the bytes of the wire.
"""
