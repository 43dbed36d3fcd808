"""Connections to Redis: URLs, clients of redis-py, and the translation of their errors.

It may import ``protocol`` and ``errors``. Start with ``urls.py`` (the forms of a URL), then
``connect.py`` and ``errors.py``.
"""
