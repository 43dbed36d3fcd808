"""Celery: a tracker that follows the tasks of an app through its signals.

``pip install 'acker-redis[celery]'``. ``tracker.py`` connects the signals, ``work.py`` is the state
of one task between them, ``signatures.py`` finds the bodies of chords in signatures.
"""

from acker_redis.integrations.celery.tracker import TaskTracker

__all__ = ["TaskTracker"]
