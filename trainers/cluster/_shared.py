"""Values in shared memory: written once, read by any child of this process."""

from __future__ import annotations

import pickle
from multiprocessing.shared_memory import SharedMemory
from typing import Any

_ALIGNED = 64  # bytes; enough for every type


class Stored:
    """A value in shared memory; arrays lie there as they are. It travels as a name. The system frees it when the run is killed."""

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(data), *(b.raw() for b in buffers)]
        self._spans, at = list[tuple[int, int]](), 0
        for part in parts:
            self._spans.append((at, at + part.nbytes))
            at += -(-part.nbytes // _ALIGNED) * _ALIGNED
        self._memory: SharedMemory | None = SharedMemory(create=True, size=max(at, 1))
        self._name = self._memory.name
        buffer: Any = self._memory.buf
        for (start, stop), part in zip(self._spans, parts, strict=True):
            buffer[start:stop] = part.cast("B")

    def __reduce__(self) -> Any:
        return _reader, (self._name, self._spans)

    def unlink(self) -> None:
        """Give the memory back. Calling it twice is allowed."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
            memory.unlink()


class Reader:
    """What a stored value is in another process."""

    def __init__(self, name: str, spans: list[tuple[int, int]]) -> None:
        self.name, self.spans = name, spans

    def load(self) -> Any:
        """Return a copy of the value; None when it is no longer there."""
        try:
            memory = SharedMemory(self.name)
        except FileNotFoundError:
            return None
        try:
            buffer: Any = memory.buf
            # bytearray: what is made of it may be written.
            data, *buffers = (bytearray(buffer[start:stop]) for start, stop in self.spans)
            return pickle.loads(data, buffers=buffers)
        finally:
            memory.close()


def _reader(name: str, spans: list[tuple[int, int]]) -> Reader:
    return Reader(name, spans)
