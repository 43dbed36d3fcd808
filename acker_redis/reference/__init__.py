"""The reference model: the acker in plain Python. Tests compare the Lua scripts with it.

The package may import ``protocol`` and ``errors`` only. Read ``acker.py`` first (loose trees),
then ``blocks.py``. ``rows.py`` packs their rows into the bytes of the wire.
"""
