"""One file per split that holds its parsed games, each read when it is asked for.

Layout: magic, offset of the index (8 bytes), zlib-compressed pickled games, then the pickled index. The file is written
beside its place and renamed, so that several processes may build it at once and none ever sees half a file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import pickle
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from agentgym.cache import cache_dir

from .game import Game, GameFileError

_MAGIC = b"agymalf1"
_HEADER = len(_MAGIC) + 8
_FEW = 300  # fewer files than this are read in a blink and need no progress bar

Candidates = Sequence[tuple[str, os.stat_result]]
Reader = Callable[[Path, str], Game | None]


class Entry(NamedTuple):
    """Where a game lies in the file."""

    offset: int
    length: int
    task_type: str


class Kept:
    """The games of a split in a buffer (a mapped file: processes share its pages, and a fork may go on reading)."""

    def __init__(self, buffer: bytes | mmap.mmap) -> None:
        start = int.from_bytes(buffer[len(_MAGIC) : _HEADER], "little")
        if buffer[: len(_MAGIC)] != _MAGIC or not _HEADER <= start < len(buffer):
            raise ValueError("not a whole cache file")
        self._buffer = buffer
        self.games: dict[str, Entry]
        self.damaged: dict[str, str]
        self.games, self.damaged = pickle.loads(buffer[start:])

    def game(self, task: str) -> Game:
        """Return one game."""
        entry = self.games[task]
        game: Game = pickle.loads(zlib.decompress(self._buffer[entry.offset : entry.offset + entry.length]))
        return game


def kept_games(root: Path, split: str, candidates: Candidates, read: Reader) -> Kept:
    """Return the games of a split: from its cache file, or by calling `read` for every candidate where none fits.

    A file fits while every game file has the size and the time of change that it had.
    """
    place = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    file = cache_dir() / "alfworld" / f"{split}-{place}-{_key(candidates)}.games"
    try:
        with open(file, "rb") as f:
            return Kept(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, EOFError, pickle.UnpicklingError, AttributeError, TypeError) as e:
        warnings.warn(f"the cache file {file} cannot be used ({e}); building it again", stacklevel=5)
    data = _build(root, split, candidates, read)
    try:
        _write(file, data)
    except OSError as e:
        warnings.warn(f"cannot write the cache file {file} ({e}); the games are read anew each time", stacklevel=5)
    return Kept(data)


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(suffix=".part", dir=file.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    outdated = f"{file.name.rpartition('-')[0]}-*.games"
    for old in file.parent.glob(outdated):
        if old != file:
            old.unlink(missing_ok=True)


def _key(candidates: Candidates) -> str:
    """Return a hash over the files' names, sizes and times, this format, and the code that parses games."""
    seen = hashlib.sha256(_MAGIC)
    for name in ("game.py", "pddl.py", "tables.py"):
        seen.update(Path(__file__).with_name(name).read_bytes())
    for task, stat in candidates:
        seen.update(f"{task}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:24]


def _build(root: Path, split: str, candidates: Candidates, read: Reader) -> bytes:
    out = bytearray(_MAGIC + bytes(8))
    games: dict[str, Entry] = {}
    damaged: dict[str, str] = {}
    for task in _shown(split, [task for task, _ in candidates]):
        try:
            game = read(root, task)
        except GameFileError as e:
            damaged[task] = str(e)
            continue
        if game is not None:
            blob = zlib.compress(pickle.dumps(game, protocol=5), level=3)
            games[task] = Entry(len(out), len(blob), game.task_type)
            out += blob
    out[len(_MAGIC) : _HEADER] = len(out).to_bytes(8, "little")
    return bytes(out + pickle.dumps((games, damaged), protocol=5))


def _shown(split: str, tasks: list[str]) -> Iterator[str]:
    """Yield the tasks and show on stderr how far it is and how long it will take: this must not look stuck."""
    if len(tasks) < _FEW:
        yield from tasks
        return
    what = f"ALFWorld {split}: reading {len(tasks)} games (the first time only)"
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{what}, about {len(tasks) / 400:.0f} s", file=sys.stderr, flush=True)
        yield from tasks
        return
    with Progress(*Progress.get_default_columns(), console=console, transient=True) as progress:
        yield from progress.track(tasks, description=what)
