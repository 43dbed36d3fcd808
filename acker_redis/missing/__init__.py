"""Which messages of an expired tree are missing: the sets of ids whose XOR is its residual.

No I/O. It may import ``protocol`` only. Begin with ``explain.py``; ``gf2.py`` finds the sets. For
DataFrames see ``spark/lost_rows.py``.
"""
