"""Rows into calls: batches are built, folded and cut into parts. No I/O.

It may import ``protocol`` and ``errors``. Begin with ``batch.py`` (a batch of single rows); a
``ColumnBatch`` is folded by ``fold_numpy.py`` or ``fold_plain.py``, and ``sent.py`` holds what was
sent of a batch and what became of it.
"""
