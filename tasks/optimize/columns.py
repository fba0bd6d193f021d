"""Columns of numbers in files that are mapped into memory: the system holds as much of them there as it has room for.

The files have no name, so that they are gone with the process, however it ends.
"""

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
AT_ONCE = 2**20
"""Values of a column that are worked on at a time."""


class Column:
    """Values one after the other, written as they come.

    Args:
        dtype: of the values.
        folder: on whose disk they are kept; None for the system's folder of temporary files.
    """

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by mapped)

    def add(self, values: npt.ArrayLike) -> None:
        """Appends values."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)

    def mapped(self) -> Array:
        """All values; nothing can be added any more. What is written into them stays in this process's memory."""
        with self._file as file:
            file.flush()
            return _array(file.fileno(), self._dtype, mmap.ACCESS_COPY)


def zeros(count: int, dtype: npt.DTypeLike, folder: Path | None = None) -> Array:
    """A column of zeros to write into.

    Raises:
        OSError: the disk has no room for it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        if count:
            # Room that is missing is an error here; found while a mapped page is written it would be a signal.
            os.posix_fallocate(file.fileno(), 0, count * np.dtype(dtype).itemsize)
        return _array(file.fileno(), np.dtype(dtype), mmap.ACCESS_WRITE)


def _array(handle: int, dtype: np.dtype[Any], access: int) -> Array:
    size = os.fstat(handle).st_size
    return np.frombuffer(mmap.mmap(handle, size, access=access) if size else b"", dtype)
