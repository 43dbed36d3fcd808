"""The acker in plain Python: what the Lua scripts mean. Tests hold Redis to it.

It may import ``protocol`` and ``errors`` only. Begin with ``acker.py`` (loose trees), then
``blocks.py``; ``rows.py`` gives their rows the bytes of the wire.
"""
