"""Cases (test vectors) of the protocol, for every language. Begin with ``README.md``.

This folder uses the reference and, of ``acker_redis``, the texts of the scripts; no client.
"""
