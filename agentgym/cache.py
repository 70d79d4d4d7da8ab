"""Where agentgym keeps what it can build again: parsed games, indexes, converted models."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from .errors import DataError
from .progress import shown

T = TypeVar("T")
_BLOCK = 1 << 22


def cache_dir() -> Path:
    """Return $AGENTGYM_CACHE, else $XDG_CACHE_HOME/agentgym, else ~/.cache/agentgym."""
    own = os.environ.get("AGENTGYM_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agentgym"


@contextlib.contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` if all goes well: another process never sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as tmp:
        inner = Path(tmp) / "new"
        inner.mkdir()
        yield inner
        try:
            inner.rename(target)
        except OSError:
            if not target.exists():  # somebody else was faster: theirs is as good
                raise


def digest(path: Path, progress: bool = True, *, what: str = "the file", expected: str = "a file") -> str:
    """Return the SHA-256 of a file's bytes; one that was hashed before is not read again while its size and time of change stay.

    what, expected  what messages call it, and what should be there
    Raises DataError for a file that is not there.
    """
    try:
        stat = path.stat()
    except OSError as e:
        raise DataError(f"cannot read {what} {path}: {e.strerror}; expected {expected}") from e
    if not path.is_file():
        raise DataError(f"{what} {path} is no file; expected {expected}")
    seen = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    note = cache_dir() / "hashes" / f"{hashlib.sha256(str(seen[0]).encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"
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
