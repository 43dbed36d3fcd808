"""Authorization: tokens and sessions, identities, hosts, limits of rate and of connections.

It may import ``problems``, ``paths``, ``limited_log`` and ``settings``. Begin with ``tokens.py``;
``guard.py`` is the outermost middleware.
"""
