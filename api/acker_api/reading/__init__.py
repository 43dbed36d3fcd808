"""Reads of Redis: status, trees, verdicts, rates, health. Only the canary writes.

It may import ``auth`` and what that may import. Begin with ``reader.py``: every read is bounded in
time and in calls.
"""
