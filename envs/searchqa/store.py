"""Documents in an Arrow file that is mapped into memory: found by number, shared by threads and processes, of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from .corpus import Document

T = TypeVar("T")

_SCHEMA = pa.schema([("id", pa.string()), ("contents", pa.string())])


def written(documents: Iterable[Document], file: Path, batch: int = 1000) -> Iterator[list[Document]]:
    """Write documents to a file; yield them in batches as they pass."""
    each = iter(documents)
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, _SCHEMA) as writer:
        while some := list(islice(each, batch)):
            writer.write_batch(pa.record_batch([[d.id for d in some], [d.contents for d in some]], schema=_SCHEMA))
            yield some


class Stored:
    """The documents that `written` wrote."""

    def __init__(self, file: Path) -> None:
        """Map a file. Raises ValueError or OSError when it is not whole."""
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        self._ids, self._contents = table["id"], table["contents"]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int) -> Document:
        return Document(self._ids[row].as_py(), self._contents[row].as_py())
