"""What an operator does: reshard, users by role, settings from the environment, measure.

It may import ``sync``, ``aio``, ``reference`` and the wings below. Begin with ``settings.py``; the
other files, ``reshard.py`` for example, stand alone.
"""
