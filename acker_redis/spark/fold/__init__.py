"""How the rows of a micro-batch become calls: packed per partition, merged per shard, applied once.

Begin with ``terms.py`` (what one row says), then ``merged.py``, ``content.py`` (a shard's calls),
``turns.py`` (whose lane sends) and ``apply.py``.
"""
