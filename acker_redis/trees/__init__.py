"""Tuple trees in a program: ids of messages, and the pending records of a source. No I/O.

It may import ``protocol`` and ``errors``. Start with ``processing.py`` (emit, ack and fail of a
message) and ``pending.py`` (the effect of each verdict on a source).
"""
