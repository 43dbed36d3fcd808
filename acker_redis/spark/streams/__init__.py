"""Data sources and sinks: a stream of verdicts, a sink of acks, and queues between jobs.

Begin with ``outcomes_source.py`` (``format("acker-outcomes")``) and ``sink.py``
(``format("acker")``); ``queue.py`` is ``FileQueue``, and ``delta_queue.py`` is
``DeltaQueue``.
"""
