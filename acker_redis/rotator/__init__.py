"""The worker that rotates the buckets: it ticks, expires the oldest bucket, and nacks what is left.

It may import ``sync`` and the wings below, ``errors``, ``kinds`` and ``logs``. Begin with
``rotator.py`` (one thread, in your own program) or ``service.py`` (the service, of a few threads).
"""
