"""Many texts in one file, found by number: a mapped file and an array of offsets, so that a corpus need not fit in memory."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np


def load_array(file: Path) -> np.ndarray[Any, Any]:
    """Return a mapped array as a plain one: the subclass `memmap` makes every slice slow."""
    return np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)


class Writer:
    """Writes `<path>.bin` (the texts) and `<path>.npy` (where each begins; one more for the end)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path.with_suffix(".bin"), "wb")  # noqa: SIM115 (closed in __exit__)
        self._offsets = [np.zeros(1, np.int64)]
        self._lengths: list[int] = []

    def append(self, text: bytes) -> None:
        """Add one text."""
        self._file.write(text)
        self._lengths.append(len(text))
        if len(self._lengths) >= 1 << 16:
            self._flush()

    def _flush(self) -> None:
        self._offsets.append(self._offsets[-1][-1] + np.cumsum(self._lengths, dtype=np.int64))
        self._lengths = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            if self._lengths:
                self._flush()
            np.save(self._path.with_suffix(".npy"), np.concatenate(self._offsets))


class Texts(Sequence[bytes]):
    """The texts that a Writer wrote. Threads and processes share the mapped pages."""

    def __init__(self, path: Path) -> None:
        self._offsets = load_array(path.with_suffix(".npy"))
        with open(path.with_suffix(".bin"), "rb") as f:
            length = f.seek(0, 2)
            if length != self._offsets[-1]:
                raise ValueError(f"{f.name} has {length} bytes, not {self._offsets[-1]}")
            self._data: bytes | mmap.mmap = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if length else b""

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._data[self._offsets[number] : self._offsets[number + 1]]
