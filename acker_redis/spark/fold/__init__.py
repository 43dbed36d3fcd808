"""How the rows of a micro-batch become calls: packed per partition, merged per shard, applied once.

Begin with ``terms.py`` (the terms of one row), then ``merged.py``, ``content.py`` (the calls of a
shard), ``lanes.py`` (the query's lane and its fence) and ``apply.py``.
"""
