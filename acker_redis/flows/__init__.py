"""Flows: the work of the clients, step by step, as generators that do no I/O.

A flow yields steps (run this script, send that command, pause) and receives their results. The
threaded and the asyncio clients run the same flows, so both take the same decisions. A flow may
import ``protocol``, ``batching``, ``trees`` and ``errors``. Begin with ``steps.py``, then
``apply.py`` (how a batch is sent) and ``source.py`` (one step of a ``Source``). ``forks.py`` resets
objects in forked children. ``namespace.py`` holds all that an ``Acker`` does.
"""
