"""Celery: a tracker that follows the tasks of an app through its signals.

It needs the extra ``celery``. ``tracker.py`` connects the signals, ``work.py`` is the state
of one task between them, ``signatures.py`` finds the bodies of chords in signatures.
"""

from acker_redis.errors import needs

with needs("celery", "acker_redis.integrations.celery"):
    from acker_redis.integrations.celery.tracker import TaskTracker

__all__ = ["TaskTracker"]
