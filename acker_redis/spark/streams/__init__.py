"""Data sources and sinks: verdicts as a stream, acks as a sink, files as queues between jobs.

Begin with ``outcomes_source.py`` (``format("acker-outcomes")``) and ``sink.py``
(``format("acker")``); ``queue.py`` is ``FileQueue``.
"""
