"""What the service reads of Redis: status, trees, verdicts, rates, health. Nothing is changed.

It may import ``auth`` and what that may import. Begin with ``reader.py``: every read is bounded in
time and in calls.
"""
