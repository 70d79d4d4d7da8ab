"""The official games on disk: which games a split has, and any one of them in well under a millisecond.

Reading 3,553 files of 80 kB takes seconds, so a split is read once and kept in one cache file (see `cache.py`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentgym.errors import DataError, TaskError, did_you_mean

from .cache import Kept, kept_games
from .game import Game
from .pddl import read_json, read_text

OFFICIAL_COUNTS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
"""Split → number of games in the complete official download, after its own filter."""

_GAME_FILE = "game.tw-pddl"


class Manifest(NamedTuple):
    """What a split holds. `sha256` is over the sorted ids, one a line; `official` is the complete count, or None."""

    split: str
    ids: list[str]
    sha256: str
    official: int | None = None


def manifest(split: str, ids: list[str], official: int | None = None) -> Manifest:
    """Return the manifest of a list of task ids."""
    return Manifest(split, list(ids), hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest(), official)


class Games:
    """The games of one split of the official data. Use `open_split`, which shares one instance within a process.

    An id is the game's folder relative to json_2.1.1. `damaged`: id → what is wrong with its file; not in `ids`.
    """

    def __init__(self, root: Path, split: str) -> None:
        self.root = root
        self.split = split
        self._kept: Kept = kept_games(root, split, _candidates(root, split), _read)
        self.damaged = self._kept.damaged
        self._ids = sorted(self._kept.games)
        if self.damaged:
            names = ", ".join(sorted(self.damaged)[:3]) + (", …" if len(self.damaged) > 3 else "")
            warnings.warn(f"{split}: left out {len(self.damaged)} damaged game file(s): {names}", stacklevel=4)

    def ids(self) -> list[str]:
        """Return the ids in sorted order."""
        return list(self._ids)

    def game(self, task: str) -> Game:
        """Return a game by its id. Raises DataError for a damaged file, TaskError for an unknown id."""
        if task in self.damaged:
            raise DataError(f"the game {task!r} is damaged: {self.damaged[task]}")
        if task not in self._kept.games:
            close = did_you_mean(task, self._ids)
            raise TaskError(f"there is no game {task!r} among the {len(self._ids)} of {self.split}.{close}")
        return self._kept.game(task)

    def task_type(self, task: str) -> str:
        """Return the task type of a game without reading it."""
        return self._kept.games[task].task_type

    def source(self, task: str) -> str:
        """Return the text of a game's file."""
        return read_text(self.root / task / _GAME_FILE)

    def manifest(self) -> Manifest:
        """Return ids, hash, and the count of the complete download."""
        return manifest(self.split, self._ids, OFFICIAL_COUNTS[self.split])


def find_root(data: str | os.PathLike[str]) -> Path:
    """Return the folder json_2.1.1 that `data` means: it, its parent, or text with variables such as "$ALFWORLD_DATA".

    Raises TaskError that says what was looked for, where, and what to do.
    """
    folder = Path(os.path.expandvars(os.fspath(data))).expanduser()
    for root in (folder / "json_2.1.1", folder):
        if root.name == "json_2.1.1" and root.is_dir():
            return root.resolve()
    raise TaskError(
        f"found no ALFWorld games: looked for the folder 'json_2.1.1' in {str(folder)!r} (data={os.fspath(data)!r}). "
        "Give data= the folder that holds json_2.1.1 (or set ALFWORLD_DATA to it and say data='$ALFWORLD_DATA'); "
        "data: null plays generated games, which need no files."
    )


@functools.lru_cache(maxsize=8)
def _open(root: Path, split: str) -> Games:
    return Games(root, split)


def open_split(data: str | os.PathLike[str], split: str) -> Games:
    """Return the games of `split` below `data`, read once per process."""
    if split not in OFFICIAL_COUNTS:
        close = did_you_mean(split, OFFICIAL_COUNTS)
        raise TaskError(f"there is no split {split!r}.{close} Splits: {', '.join(OFFICIAL_COUNTS)}")
    root = find_root(data)
    if not (root / split).is_dir():
        have = ", ".join(s for s in OFFICIAL_COUNTS if (root / s).is_dir()) or "none"
        raise TaskError(f"{root} has no folder {split!r}; it has: {have}. Unpack it, or take another split")
    return _open(root, split)


def _candidates(root: Path, split: str) -> list[tuple[str, os.stat_result]]:
    """Return (id, stat of its game file) of every game that the official filter lets pass by its path, sorted."""
    found = []
    for trial in _trials(root / split):
        task = f"{split}/{trial.parent.name}/{trial.name}"
        if "movable" in task or "Sliced" in task:
            continue
        try:
            found.append((task, os.stat(trial / _GAME_FILE)))
        except FileNotFoundError:  # the download has trials that nobody could make a game of
            continue
    return sorted(found)


def _trials(folder: Path) -> Iterator[Path]:
    for kind in os.scandir(folder):
        if kind.is_dir():
            yield from (Path(trial.path) for trial in os.scandir(kind.path) if trial.is_dir())


def _read(root: Path, task: str) -> Game | None:
    """Return a parsed game, or None where the file says that it is not solvable. Raises GameFileError."""
    file = root / task / _GAME_FILE
    data = read_json(read_text(file), source=str(file))
    return Game.from_data(data, source=task) if data.get("solvable") is True else None
