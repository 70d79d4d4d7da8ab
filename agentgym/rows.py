"""Rows of a data file or of a hub's data set, each with where it stands."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import DataError, did_you_mean

SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz")

Row = tuple[str, Any, str]  # where it stands: file and number from 1; what stands there, or a DataError; the split that the place says, or ""


def rows(name: str | Path, split: str | None = None, *, what: str = "rows", key: str = "", also: str = "") -> Iterator[Row]:
    """Yield the rows of a file in one of SUFFIXES, or of `hub:owner/name[:config]` through `datasets` (all splits where none is named).

    what  the rows in words; `also`: other names than those of files that are allowed; both for messages
    key   under which a .json file may hold the list
    Raises DataError for a file that is not there or cannot be read: file, row, what is allowed.
    """
    if str(name).startswith("hub:"):
        yield from _hub(str(name), split)
        return
    path = Path(name)
    suffix = next((s for s in sorted(SUFFIXES, key=len, reverse=True) if path.name.endswith(s)), None)
    if suffix is None:
        raise DataError(
            f"cannot tell the format of {path} by its name; known endings: {', '.join(SUFFIXES)}; or hub:owner/name{also}."
            f"{did_you_mean(path.suffix, SUFFIXES)}"
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}; expected {what} in one of the formats {', '.join(SUFFIXES)}")
    found = _parquet(path) if suffix == ".parquet" else _lines(path) if suffix.startswith(".jsonl") else _list(path, key)
    yield from ((f"{path}, row {number}", row, "") for number, row in found)


def _text(path: Path) -> str:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as e:  # a cut-off archive, no access, bytes that are no text
        raise DataError(f"cannot read {path}: {e}; expected UTF-8 text{' in a gzip archive' if path.suffix == '.gz' else ''}") from e


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield number, parsed(line, f"{path}, row {number}", "one JSON object a line (a list of them: name the file .json)")
            except DataError as e:  # whoever reads the rows may go on with the next line
                yield number, e


def _list(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    data = parsed(_text(path), str(path), "a list of JSON objects (one a line: name the file .jsonl)")
    data = data.get(key, data) if isinstance(data, dict) else data
    if not isinstance(data, list):
        raise DataError(f"{path} holds {short(data)}; expected a list of JSON objects{f', or such a list under the key {key!r}' if key else ''}")
    yield from enumerate(data, start=1)


def parsed(text: str, where: str, expected: str) -> Any:
    """Return what a JSON text says. Raises DataError: where, what is wrong, what is expected."""
    try:
        return json.loads(text)
    except ValueError as e:
        raise DataError(f"{where} is no JSON ({e}): {text[:80]!r}; expected {expected}") from e


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise DataError(f"reading {path} needs the package pyarrow: pip install pyarrow") from e
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=64):  # a row of R2E-Gym can be megabytes
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as e:
        raise DataError(f"cannot read {path} as parquet: {e}") from e


def _hub(name: str, split: str | None) -> Iterator[Row]:
    from datasets import load_dataset

    repo, _, config = name.removeprefix("hub:").partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise DataError(f"{name!r} names no data set; expected hub:owner/name or hub:owner/name:config")
    try:
        found = load_dataset(repo, config or None, split=split)
    except Exception as e:  # the library raises dozens of types for: no network, no such name, config or split, no access
        raise DataError(
            f"cannot load {repo}{f' ({config})' if config else ''}{f', split {split!r}' if split else ''} from the hub: {type(e).__name__}: {e}; "
            f"check name, config, split and network, or give the path of a file: {', '.join(SUFFIXES)}"
        ) from e
    for part, table in {split: found}.items() if split is not None else found.items():
        for number, row in enumerate(table, start=1):
            yield f"{name} ({part}), row {number}", row, str(part)


def short(value: Any) -> str:
    """Return a value's repr, cut to fit a message."""
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
