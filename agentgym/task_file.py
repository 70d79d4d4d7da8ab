"""Task files: one JSON object per line, with an `id`, a `split`, and whatever the environment reads."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DataError, TaskError, did_you_mean

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """The tasks of one split, in the order of the file."""

    ids: list[str]
    by_id: dict[str, Row]


def read_rows(source: str | Path | Sequence[Row], split: str | None, where: str) -> Rows:
    """Return the rows of a split from a JSON-lines file or a list.

    A row without `split` belongs to "train"; one without `id` gets a hash of its contents, so that adding rows renames none. Raises DataError
    that names the line of a damaged row or of a second row with the same id, TaskError on a split that no row has.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser().resolve()
        if not path.is_file():
            raise DataError(f"{where}: the task file {path} does not exist; it has one JSON object per line, such as {_EXAMPLE}")
        stat = path.stat()
        return _of_file(path, stat.st_mtime_ns, stat.st_size, split, where)
    return _pick([_checked(row, f"{where}: task {i}") for i, row in enumerate(source)], split, where)


_EXAMPLE = '{"id": "one", "split": "train", "question": "…"}'


@functools.lru_cache(maxsize=64)
def _of_file(path: Path, mtime: int, size: int, split: str | None, where: str) -> Rows:
    """Read a file once, however many environments of it are made; a changed file is read again."""
    rows = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: cannot be read as UTF-8 text: {e}") from e
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise DataError(f"{path}, line {number}: not valid JSON ({e}); every line is one object, such as {_EXAMPLE}") from None
        rows.append(_checked(row, f"{path}, line {number}"))
    return _pick(rows, split, str(path))


def _checked(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: a task is an object, such as {_EXAMPLE}; got {type(row).__name__}")
    out = dict(row)
    if "id" not in out:
        out["id"] = hashlib.sha256(json.dumps(out, sort_keys=True, default=str).encode()).hexdigest()[:12]
    out["id"], out["split"] = str(out["id"]), str(out.get("split", "train"))
    return out


def _pick(rows: list[dict[str, Any]], split: str | None, where: str) -> Rows:
    seen: set[str] = set()
    for row in rows:
        if row["id"] in seen:
            raise DataError(f"{where}: two tasks have the id {row['id']!r}; ids are unique, over all splits")
        seen.add(row["id"])
    mine = [r for r in rows if split is None or r["split"] == split]
    if not mine:
        have = sorted({r["split"] for r in rows})
        raise TaskError(f"{where}: no task has the split {split!r}.{did_you_mean(str(split), have)} Splits there: {', '.join(have) or 'none'}")
    return Rows([r["id"] for r in mine], {r["id"]: r for r in mine})
