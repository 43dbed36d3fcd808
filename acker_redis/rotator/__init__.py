"""The rotator: ticks, and drains the expired bucket, whose trees it nacks.

It may import ``sync`` and the wings below, ``errors``, ``kinds`` and ``logs``. Begin with
``rotator.py`` (threads in your own program) or ``service.py`` (a service).
"""
