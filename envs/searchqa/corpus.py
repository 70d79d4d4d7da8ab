"""A corpus: documents in a file (.jsonl, .jsonl.gz, .json, .parquet), read one by one, with the hash of the file's bytes."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym import cache
from agentgym.errors import ConfigError, DataError, did_you_mean
from agentgym.progress import Advance, shown

try:
    import orjson
except ImportError as e:
    raise ConfigError("search needs the package orjson: pip install orjson") from e

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
EXPECTED = '{"id": "0", "contents": "\\"Title\\"\\ntext"} or {"id": "0", "title": "…", "text": "…"} (an id may be missing)'


@dataclass(frozen=True, slots=True)
class Document:
    """One document. Its title is the first line of `contents`, its quotes kept as they are."""

    id: str
    contents: str

    @property
    def title(self) -> str:
        """Return the first line."""
        return self.contents.partition("\n")[0]

    @property
    def text(self) -> str:
        """Return everything after the first line."""
        return self.contents.partition("\n")[2]


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found, and how well it fits (larger is better)."""

    document: Document
    score: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.document, self.score))


def digest(path: Path, progress: bool = True) -> str:
    """Return the SHA-256 of a corpus file; see agentgym.cache.digest."""
    return cache.digest(path, progress, what="the corpus", expected=f"a file that ends in {', '.join(SUFFIXES)}")


def read(path: Path, progress: bool = True) -> Iterator[Document]:
    """Yield the documents of a file. Raises DataError that names the line (or row) which is no document."""
    suffix = next((s for s in SUFFIXES if path.name.endswith(s)), None)
    if suffix is None:
        raise DataError(
            f"cannot tell the format of the corpus {path} from its name.{did_you_mean(path.suffix, SUFFIXES)} Known: {', '.join(SUFFIXES)}"
        )
    with shown(f"{path.name}: indexing (the first time only)", path.stat().st_size, progress) as advance:
        rows = {".jsonl": _lines, ".jsonl.gz": _lines, ".json": _list, ".parquet": _parquet}[suffix](path, advance)
        for number, (where, row) in enumerate(rows):
            yield _document(row, where, number)


def _document(row: Any, where: str, number: int) -> Document:
    if not isinstance(row, dict):
        raise DataError(f"{where} is no document: got {_short(row)}; expected an object like {EXPECTED}")
    contents, name = row.get("contents"), row.get("id", row.get("_id"))
    if contents is None and isinstance(row.get("text"), str) and isinstance(row.get("title") or "", str):
        contents = f"{' '.join((row.get('title') or '').split())}\n{row['text']}"
    if not isinstance(contents, str):
        raise DataError(f"{where} is no document: 'contents' (or 'title' and 'text') is no text in {_short(row)}; expected {EXPECTED}")
    if name is None:
        name = number
    if not isinstance(name, str | int):
        raise DataError(f"{where} is no document: its id is {name!r}; expected a text or a number, as in {EXPECTED}")
    return Document(str(name), contents)


def _short(row: Any) -> str:
    text = repr(row)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _lines(path: Path, advance: Advance) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as raw:
        lines: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw
        read = 0
        for number, line in enumerate(_unbroken(lines, path), start=1):
            if number % 1000 == 0:  # by bytes of the file as it lies there, so that an archive too tells how far it is
                read, before = raw.tell(), read
                advance(read - before)
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as e:
                raise DataError(f"{path}:{number} is no JSON ({e}): {line[:120]!r}; expected one document a line: {EXPECTED}") from e
            yield f"{path}:{number}", row


def _unbroken(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from lines
    except (OSError, EOFError) as e:  # a damaged or cut-off archive
        raise DataError(f"cannot read {path} to its end: {e}; get the file again") from e


def _list(path: Path, advance: Advance) -> Iterator[tuple[str, Any]]:
    try:
        rows = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as e:
        raise DataError(f"{path} is no JSON: {e}; expected a list of documents like {EXPECTED} (one document a line: name it .jsonl)") from e
    if not isinstance(rows, list):
        raise DataError(f"{path} holds {type(rows).__name__}; expected a list of documents like {EXPECTED}")
    for number, row in enumerate(rows):
        yield f"{path}, item {number}", row


def _parquet(path: Path, advance: Advance) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise DataError(f"reading {path} needs pyarrow: pip install pyarrow") from e
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            number, part = 0, path.stat().st_size // max(1, table.metadata.num_rows)
            for batch in table.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
                advance(part * len(batch))
    except (pyarrow.ArrowException, OSError) as e:
        raise DataError(f"{path} cannot be read as parquet: {e}") from e
