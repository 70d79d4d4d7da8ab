"""A corpus: documents in a file (.jsonl, .jsonl.gz, .json, .parquet), read one by one, with the hash of the file's bytes."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from agentgym.cache import cache_dir
from agentgym.errors import ConfigError, DataError, did_you_mean

try:
    import orjson
except ImportError as e:
    raise ConfigError("search needs the package orjson: pip install orjson PyStemmer") from e

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
EXPECTED = '{"id": "0", "contents": "\\"Title\\"\\ntext"} or {"id": "0", "title": "…", "text": "…"} (an id may be missing)'
_BLOCK = 1 << 22
_QUIET_S = 2.0  # work that takes less than this many seconds is not worth a line


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


Advance = Callable[[int], None]


@contextlib.contextmanager
def shown(what: str, total: int, progress: bool) -> Iterator[Advance]:
    """Show on stderr how far `what` is and how long it will take; yield a function that takes what was done of `total` since the last call."""
    console = Console(stderr=True)
    if progress and console.is_terminal:
        with Progress(*Progress.get_default_columns(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
        return
    start = said = time.monotonic()
    sofar = 0

    def advance(done: int) -> None:
        nonlocal said, sofar
        sofar += done
        now = time.monotonic()
        if progress and sofar and now - said > (30 if said > start else _QUIET_S):
            said = now
            left = (now - start) * max(0, total - sofar) / sofar
            print(f"{what}: {100 * sofar / max(1, total):.0f} %, about {left:.0f} s left", file=sys.stderr, flush=True)

    yield advance


def digest(path: Path, progress: bool = True) -> str:
    """Return the SHA-256 of a file's bytes; one that was hashed before is not read again while its size and time of change stay.

    Raises DataError for a file that is not there.
    """
    try:
        stat = path.stat()
    except OSError as e:
        raise DataError(f"cannot read the corpus {path}: {e.strerror}; expected a file that ends in {', '.join(SUFFIXES)}") from e
    if not path.is_file():
        raise DataError(f"the corpus {path} is no file; expected one that ends in {', '.join(SUFFIXES)}")
    seen = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    note = cache_dir() / "searchqa" / "hashes" / f"{hashlib.sha256(str(seen[0]).encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"
    try:
        kept = json.loads(note.read_bytes())
        if kept["of"] == seen:
            return str(kept["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    sha = hashlib.sha256()
    with open(path, "rb") as f, shown(f"{path.name}: hashing", stat.st_size, progress) as advance:
        while block := f.read(_BLOCK):
            sha.update(block)
            advance(len(block))
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        _note(note, {"of": seen, "sha256": sha.hexdigest()})
    return sha.hexdigest()


def _note(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        json.dump(content, f)
    os.replace(part, file)


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
