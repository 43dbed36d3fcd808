"""Which messages of an expired tree are missing: the sets of ids whose XOR is its residual.

Pure: no Redis, no I/O. :func:`acker_redis.explain` is the entrance, and
:func:`acker_redis.spark.explain` the same for DataFrames.
"""
