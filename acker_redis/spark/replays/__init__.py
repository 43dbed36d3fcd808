"""Replays of nacked records: which attempt has failed, which nacks wait, and the writer.

Begin with ``writer.py``.
"""
