"""What an operator does: reshard, users by role, settings from the environment, measure.

It may import ``sync``, ``aio``, ``reference`` and the wings below. Each file stands alone.
"""
