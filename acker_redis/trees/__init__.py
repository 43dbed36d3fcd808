"""Tuple trees as programs know them: ids of messages, and what a source remembers. No I/O.

It may import ``protocol`` and ``errors``. Begin with ``processing.py`` (emit, ack and fail of a
message) and ``pending.py`` (what each verdict means to a source).
"""
