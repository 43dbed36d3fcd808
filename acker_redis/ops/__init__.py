"""Tools of an operator: reshard, Redis users by role, settings from the environment, benchmark.

It may import ``sync``, ``aio`` and the wings below. Begin with ``settings.py``. The
other files, such as ``reshard.py``, stand alone.
"""
