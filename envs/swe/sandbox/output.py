"""The start and the end of a command's output, however much it was."""

from __future__ import annotations

import re
from collections import deque

_ESCAPED = re.compile("[\ud800-\udfff]")


class Output:
    """Takes bytes, keeps at most so many characters of them: the memory it needs does not grow with what it is given."""

    def __init__(self, characters: int) -> None:
        self._half = max(1, characters // 2)
        self._room = 4 * self._half + 4  # bytes that hold so many characters whatever they are, even if the first one is cut
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take what comes next."""
        self.total += len(data)
        if missing := self._room - len(self._head):
            self._head += data[:missing]
            data = data[missing:]
        if data:
            self._tail.append(data[-self._room :])
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) >= self._room:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> tuple[str, int]:
        """Return (the characters, the number of bytes that were left out); a line in the middle says that number."""
        tail = b"".join(self._tail)
        if len(self._head) + len(tail) == self.total:
            whole = (bytes(self._head) + tail).decode("utf-8", "surrogateescape")
            if len(whole) <= 2 * self._half:
                return _clean(whole), 0
            first, last = whole[: self._half], whole[-self._half :]
        else:
            first = self._head.decode("utf-8", "surrogateescape")[: self._half]
            last = tail.decode("utf-8", "surrogateescape")[-self._half :]
        dropped = self.total - sum(len(part.encode("utf-8", "surrogateescape")) for part in (first, last))
        return f"{_clean(first)}\n[… {dropped:,} bytes left out here …]\n{_clean(last)}", dropped


def _clean(text: str) -> str:
    """Replace the bytes that are no UTF-8."""
    return _ESCAPED.sub("\ufffd", text)
