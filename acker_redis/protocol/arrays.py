"""Columns of 64-bit integers in numpy, and their bytes on the wire."""

from typing import Any

import numpy as np
import numpy.typing as npt

from acker_redis.errors import InvalidBatchError

Ints = npt.NDArray[np.int64]


def ints(kind: str, column: Any) -> Ints:
    """Return a column of numpy, Arrow, pandas or plain Python as an int64 array.

    Raises InvalidBatchError unless all values are whole numbers from 0 to 2^63-1.
    """
    if np.ma.is_masked(column):
        raise InvalidBatchError(f"{kind} are one column without nulls, but this one is masked")
    array = np.asarray(column if hasattr(column, "__len__") else list(column))
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    # Ids have 63 bits: a narrower type has lost bits, or its items are bytes of a buffer.
    if array.dtype.kind not in "iu" or array.dtype.itemsize != 8 or array.ndim != 1:
        raise InvalidBatchError(
            f"{kind} are one column of 64-bit integers without nulls, not {array.dtype}"
        )
    array = array.astype(np.uint64 if array.dtype == np.uint64 else np.int64, copy=False)
    signed = array.view(np.int64)
    if signed.min() < 0:
        raise InvalidBatchError(
            f"{kind} are numbers from 0 to 2^63-1, not {int(array[signed < 0][0])}"
        )
    return signed


def distinct(column: Ints) -> Ints:
    """Return the values of a column, each once, ascending.

    From numpy 2.3 on, ``np.unique`` fills a hash table instead, which takes 200 times as long for
    millions of ids.
    """
    ordered = np.sort(column)
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def wire(numbers: Ints) -> bytes:
    """Return the numbers as bytes, 8 per number, big-endian."""
    return numbers.astype(">i8").tobytes()
