"""What clients do, step by step, as generators that do no I/O.

A flow yields steps (run this script, send that command, pause) and receives their results, so
threads and asyncio run the same decisions. It may import ``protocol``, ``batching``, ``trees``,
``errors`` and ``forks``. Begin with ``steps.py``, then ``apply.py`` (how a batch is sent) and
``source.py`` (what a ``Source`` does). ``namespace.py`` is all that an ``Acker`` does.
"""
