"""The file of generated tasks: a line of JSON for each package, with its tests, then a line for each task, whose tests are numbers. Compressed.

    {"package": "first", "version": "2.0.2", "sha256": "…", "tests": ["test_first.py::…", …]}
    {"id": "first-0a1b2c3d4e", "package": "first", "patch": "diff …", "problem": "…", "fail": [0, 2], "difficulty": "easy", "split": "train",
     "bugs": ["off_by_one"]}

All tests of the package's list pass in the sound package; those that are not in `fail` pass with the bug too.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.errors import DataError

from . import diffs
from .packages import PACKAGES, Package
from .task import Base, SweTask

FILE = Path(__file__).parent / "tasks.jsonl.gz"
SHA256 = "817bfd80a4934f79dfa0e90508ce2733319dce5a733eb303e6bfe55176a7255a"  # of the uncompressed file that ships
SPLITS = ("train", "test")


def write(file: Path, lines: Iterable[Mapping[str, Any]]) -> str:
    """Write lines of a task set; return the SHA-256 of the uncompressed text. The same lines give the same bytes."""
    text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n" for line in lines).encode()
    part = file.with_suffix(".part")
    part.write_bytes(gzip.compress(text, 9, mtime=0))
    os.replace(part, file)
    return hashlib.sha256(text).hexdigest()


def lines(file: Path, sha256: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of a file of tasks. Raises DataError where it cannot be read, or is not the one with that hash."""
    try:
        text = gzip.decompress(file.read_bytes())
    except (OSError, EOFError) as e:
        raise DataError(f"cannot read the task set {file}: {e}; `agentgym tasks build swe` makes one") from e
    got = hashlib.sha256(text).hexdigest()
    if sha256 is not None and got != sha256:
        raise DataError(f"the task set {file} has SHA-256 {got}, expected {sha256}: it is damaged or another one; install the package again")
    try:
        return [json.loads(line) for line in text.decode().splitlines()]
    except ValueError as e:
        raise DataError(f"the task set {file} is damaged: {e}") from e


def is_built(file: Path) -> bool:
    """Return whether a file is one of generated tasks, as `write` makes them."""
    if not file.name.endswith(".jsonl.gz") or not file.is_file():
        return False
    try:
        with gzip.open(file, "rt", encoding="utf-8") as f:
            first = json.loads(f.readline())
    except (OSError, EOFError, ValueError):
        return False  # a reader of rows says what is wrong with it
    return isinstance(first, dict) and {"package", "sha256", "tests"} <= first.keys() and "id" not in first


def tasks(file: Path, sha256: str | None = None) -> list[SweTask]:
    """Return the tasks of a file, in its order. Raises DataError as `lines` does, and for a package in another version than packages.py pins."""
    out: list[SweTask] = []
    packages: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for line in lines(file, sha256):
        if "id" not in line:
            pinned = PACKAGES.get(line["package"])
            if pinned is None or pinned.sha256 != line["sha256"]:
                raise DataError(f"the task set {file} is of {line['package']} {line['version']}, which packages.py does not pin; build it again")
            packages[line["package"]] = line, line["tests"]
            continue
        package, tests = packages[line["package"]]
        fail = set(line["fail"])
        base = Base(package=line["package"], version=package["version"], sha256=package["sha256"], bug=diffs.reverse(line["patch"]))
        failing = tuple(tests[i] for i in line["fail"])
        out.append(
            SweTask(
                line["id"],
                "generated",
                line["package"],
                base,
                line["problem"],
                failing,
                tuple(id for i, id in enumerate(tests) if i not in fail),
                line["patch"],
                hidden=hidden(PACKAGES[line["package"]], tests, failing),
                difficulty=line["difficulty"],
                split=line["split"],
            )
        )
    return out


def hidden(package: Package, tests: Sequence[str], failing: Sequence[str]) -> tuple[str, ...]:
    """Return the files of tests that the agent must not see: those of the failing tests; all of them where they inherit tests from each other."""
    files = {id.split("::")[0] for id in (tests if package.shared else failing)}
    return tuple(sorted(files | set(package.shared)))


@functools.cache
def shipped() -> tuple[SweTask, ...]:
    """Return the tasks that come with agentgym."""
    return tuple(tasks(FILE, SHA256))
