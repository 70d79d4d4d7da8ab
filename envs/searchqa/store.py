"""Documents in an Arrow file that is mapped into memory: found by number, shared by threads and processes, of any size."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from agentgym.cache import atomic_folder
from agentgym.errors import DataError

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


def built_once(
    folder: Path, name: str, load: Callable[[Path], T], build: Callable[[Path], None], *, damaged: tuple[type[Exception], ...]
) -> tuple[T, bool]:
    """Return (the index in `folder`, whether it was built now): loaded where it is there and whole, else built into an empty folder first.

    damaged  what `load` raises for an index that is not whole; it is built again, with a warning
    Raises DataError where the folder cannot be written.
    """
    if folder.exists():
        try:
            return load(folder), False
        except damaged as e:
            warnings.warn(f"the index {folder} cannot be used ({e}); building it again", stacklevel=4)
            shutil.rmtree(folder, ignore_errors=True)
    try:
        with atomic_folder(folder) as new:
            build(new)
    except OSError as e:
        raise DataError(f"cannot write the index of {name} to {folder.parent}: {e}; set AGENTGYM_CACHE to a folder with space") from e
    return load(folder), True
