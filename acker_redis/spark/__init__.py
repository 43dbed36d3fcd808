"""Spark Structured Streaming: columns, and writers for ``foreachBatch``.

Needs the extra ``acker-redis[spark]``.
"""
