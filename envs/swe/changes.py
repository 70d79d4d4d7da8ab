"""What the agent changed, and what of it is graded.

The agent's git is not asked: the files of its work tree are compared with those it was given, by our own listing. What decides about tests, or what
pytest and Python load by themselves, is left out.
"""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agentgym.errors import EnvError

from . import diffs, inside_files
from .packages import is_test
from .sandbox import TREE, Sandbox
from .task import SweTask

MAX_FILE, MAX_ALL, MAX_COUNT = 2 << 20, 16 << 20, 1000
_LISTING = 64 << 20  # characters
_SECONDS = 120.0

# Loaded by pytest, coverage or Python without being asked for.
_NAMES = frozenset("conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml .coveragerc sitecustomize.py usercustomize.py pyvenv.cfg".split())
_SETTINGS = frozenset("setup.cfg tox.ini pyproject.toml".split())  # they may have a section for pytest
_ENDINGS = (".pth", ".egg-link", ".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib")
_FOLDERS = (".dist-info", ".egg-info", ".egg")
_ALSO = (
    "pytest _pytest pluggy iniconfig packaging pygments py exceptiongroup tomli attr attrs coverage pytest_cov xdist pytest_timeout pytest_asyncio "
    "hypothesis nose"
)

Entry = tuple[str, int, int, str]  # kind, mode, size, hash
Files = Mapping[str, Entry]


@dataclass
class Changes:
    """What is different in the agent's work tree.

    files    path → content, None where it was deleted: what is graded
    run      those of `files` that can be run
    dropped  path → why it is not graded
    """

    files: dict[str, bytes | None] = field(default_factory=dict)
    run: set[str] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)

    def drop(self, path: str, why: str) -> None:
        """Grade a change no longer."""
        self.files.pop(path, None)
        self.run.discard(path)
        self.dropped[path] = why


@functools.cache
def helper() -> str:
    """Return the source of the helper that lists a tree."""
    return Path(inside_files.__file__).read_text("utf-8")


def listed(folder: Path) -> Files:
    """Return the files of a folder of the host."""
    return {path: (kind, mode, size, sha) for path, kind, mode, size, sha in inside_files.entries(str(folder))}


def listed_inside(box: Sandbox, python: str, root: str = TREE) -> Files:
    """Return the files of a sandbox's work tree.

    The agent's processes could disturb the listing: then it is made again after they were ended. What it says is not trusted to be true, only to be
    what the agent wants to hand in. Raises EnvError where there is none the second time.
    """
    command = f"exec {shlex.quote(python)} -I -S -c {shlex.quote(helper())} list {shlex.quote(root)}"
    said = ""
    for attempt in range(2):
        if attempt:
            box.snapshot()
        done = box.run(command, timeout=_SECONDS, output=_LISTING)
        lines = done.output.splitlines()
        if done.code == 0 and lines and lines[-1] == "end":
            try:
                return {str(path): (str(kind), int(mode), int(size), str(sha)) for path, kind, mode, size, sha in map(json.loads, lines[:-1])}
            except (ValueError, TypeError):
                pass
        said = done.output[-300:]
    raise EnvError(f"the files of the sandbox cannot be listed (status {done.code}): {said}")


def changes(box: Sandbox, start: Files, now: Files, task: SweTask) -> Changes:
    """Return what differs from what the agent was given: read out of its sandbox, and sorted into what is graded and what is not."""
    out, size = Changes(), 0
    rules = Rules(start, now, task)
    for path in sorted(start.keys() | now.keys()):
        there = now.get(path)
        if start.get(path) == there:
            continue
        why = rules.left_out(path, there)
        if not why and len(out.files) >= MAX_COUNT:
            why = f"more than {MAX_COUNT} files were changed"
        if why:
            out.dropped[path] = why
            continue
        if there is None:
            out.files[path] = None
            continue
        try:
            data = box.read(path, MAX_FILE + 1)
        except OSError as e:
            out.dropped[path] = f"it cannot be read: {e.strerror}"
            continue
        size += len(data)
        if len(data) > MAX_FILE or size > MAX_ALL:
            out.dropped[path] = f"it has more than {MAX_FILE >> 20} MB, or all have more than {MAX_ALL >> 20} MB"
            continue
        out.files[path] = data
        if there[1]:
            out.run.add(path)
    return out


class Rules:
    """Says which changes of a work tree are graded.

    start, now  the files that the agent was given, and those that it has now
    """

    def __init__(self, start: Files, now: Files, task: SweTask) -> None:
        self._start, self._hidden = start, tuple(h.rstrip("/") for h in task.hidden)
        # What the task's own fix changes is no test, whatever its name (django/test/client.py).
        self._gold = frozenset(path for file in diffs.parse(task.patch) for path in (file.old, file.new) if path)
        self._folders = {str(parent) for path in start for parent in PurePosixPath(path).parents}
        tests = [PurePosixPath(path) for path in (*start, *self._hidden) if path.endswith(".py") and is_test(path)]
        self._taken = _modules() | {path.stem for path in tests if path.stem not in ("__init__", "conftest")}
        self._packages = {str(PurePosixPath(path).parent) for path in start if path.endswith("/__init__.py")}
        new = {str(PurePosixPath(path).parent) for path in now if path.endswith("/__init__.py")} - self._packages
        for folder in sorted(new):  # the upper ones come first
            if str(PurePosixPath(folder).parent) in self._packages:
                self._packages.add(folder)

    def left_out(self, path: str, there: Entry | None) -> str:
        """Return why a change is not graded, "" where it is. there: what the path is now, None where it is gone."""
        pure = PurePosixPath(path)
        if not path.isprintable() and any("\ud800" <= c <= "\udfff" for c in path):
            return "its name is no text"
        if there is not None and there[0] != "file":
            return {"link": "it is a link", "unreadable": "it cannot be read"}.get(there[0], "it is no file")
        if any(path == h or path.startswith(f"{h}/") for h in self._hidden):
            return "it is in the place of a hidden test"
        if pure.name in _NAMES:
            return "pytest or Python loads it by itself"
        if pure.name in _SETTINGS and path not in self._gold:
            return "it may hold settings of pytest"
        if pure.name.endswith(_ENDINGS):
            return "it is compiled, or Python loads it by itself"
        if any(part.endswith(_FOLDERS) for part in pure.parts):
            return "it is the metadata of a package, which may name plugins"
        if path not in self._gold and is_test(path):
            return "it is a test"
        if name := self._shadowed(pure):
            return f"it would be imported instead of {name}"
        return ""

    def _shadowed(self, pure: PurePosixPath) -> str:
        """Return the module of Python's, pytest's or the tests' whose place a new file takes, "" for none. Inside of a package it takes nobody's."""
        if not pure.name.endswith(".py") or str(pure) in self._start or str(pure) in self._gold:
            return ""
        for i, part in enumerate(pure.parts):
            folder, here = str(PurePosixPath(*pure.parts[:i])), str(PurePosixPath(*pure.parts[: i + 1]))
            name = part.removesuffix(".py")
            if name in self._taken and folder not in self._packages and here not in self._folders:
                return name
        return ""


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(sys.stdlib_module_names) | frozenset(_ALSO.split())


_SUSPICIOUS = (
    "_pytest", "pytest", "pluggy", "unittest", "conftest", "sys.modules", "sys.meta_path", "_getframe", "currentframe", "inspect.stack", "gc.get_",
    "ctypes", "os._exit", "atexit", "builtins", "__builtins__", "settrace", "setprofile", "/proc/", "LD_PRELOAD", "PYTEST_", "signal.",
)  # fmt: skip


def flags(found: Changes, base: Mapping[str, bytes | None]) -> list[str]:
    """Return what a person should look at: words in changed files that are new there and that honest repairs seldom need. It decides nothing."""
    out = []
    for path, data in found.files.items():
        before = (base.get(path) or b"").decode("utf-8", "replace")
        text = (data or b"").decode("utf-8", "replace")
        out += [f"{path}: {word}" for word in _SUSPICIOUS if word in text and word not in before]
    return out + [f"{path}: dropped, {why}" for path, why in found.dropped.items()]
