"""From rows to calls: build batches, fold their rows, and split them into parts. No I/O.

It may import ``protocol`` and ``errors``. Start with ``batch.py`` (a batch of single rows).
``fold_numpy.py`` or ``fold_plain.py`` folds a ``ColumnBatch``. ``sent.py`` holds the state of a
sent batch and its result.
"""
