"""The repository of a task: what the agent gets, and what it is graded in.

The agent gets the base tree with the bug as ONE commit by a fixed author at a fixed time: no history, no remotes, no reflog, no hooks, and none of
the files that hold the hidden tests. What it is graded in is made anew from the same source, tests included, and never from the agent's sandbox.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from agentgym.cache import atomic_folder, cache_dir
from agentgym.errors import DataError, EnvError

from . import diffs, packages
from .sandbox import TREE, Backend, Limits, Sandbox, owner
from .task import SweTask

_RECIPE = 1  # raise it when what the agent gets changes
_WHEN = "2020-01-01T00:00:00+0000"
_WHAT = {"NAME": "base", "EMAIL": "base@localhost", "DATE": _WHEN}
_WHO = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _WHAT.items()}
_GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C.UTF-8", **_WHO}
_CONFIG = "[core]\n\tlogAllRefUpdates = false\n[gc]\n\tauto = 0\n[user]\n\tname = agent\n\temail = agent@localhost\n"
_ONE_COMMIT = f"""set -e
find . -name .git -prune -exec rm -rf {{}} +
git init -q --template= .
git symbolic-ref HEAD refs/heads/main
printf %s {shlex.quote(_CONFIG)} >> .git/config
git add -A $FORCE .
git commit -q --no-verify --allow-empty -m 'The repository as it stands'
rm -rf .git/COMMIT_EDITMSG .git/description .git/branches .git/logs
"""
# Where the images of the task sets keep the Python that can import the repository: SWE-bench, SWE-Gym and SWE-smith; then R2E-Gym.
IMAGE_PATH = (
    "/opt/miniconda3/envs/testbed/bin:/testbed/.venv/bin:/root/.venv/bin:/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)


class Place(Protocol):
    """Where files are written before a sandbox is used: a folder of the host, or a sandbox that was just opened."""

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None where there is none. Raises OSError, DataError."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a file and the folders above it. Raises OSError, DataError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all below it; nothing where there is none."""
        ...


class FolderPlace:
    """A folder of the host. Raises DataError for a path that leads out of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, path: str) -> bytes | None:
        place = diffs.inside(self.folder, path)
        return place.read_bytes() if place.is_file() else None

    def write(self, path: str, data: bytes) -> None:
        place = diffs.inside(self.folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def remove(self, path: str) -> None:
        place = diffs.inside(self.folder, path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class BoxPlace:
    """The work tree of a sandbox in which nothing of the agent's has run."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box

    def read(self, path: str) -> bytes | None:
        try:
            return self.box.read(path, 64 << 20)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def write(self, path: str, data: bytes) -> None:
        self.box.write(path, data)

    def remove(self, path: str) -> None:
        _must(self.box, f"rm -rf -- {shlex.quote(os.path.join('.', path))}", f"remove {path}")


def visible(task: SweTask) -> bool:
    """Return whether the agent sees the test files as they are at the base commit: where a patch brings the hidden tests, they hold none."""
    return bool(task.test_patch)


def pristine(package: packages.Package) -> Path:
    """Return the unpacked sdist of a package, in the cache. Nobody writes there."""
    folder = cache_dir() / "swe" / "unpacked" / f"{package.name}-{package.version}-{package.sha256[:12]}"
    if not folder.is_dir():
        with atomic_folder(folder) as new:
            packages.unpack(package, new)
    return folder


def broken(task: SweTask, to: Path) -> Path:
    """Make the base tree of a package's task in the folder `to`: the package with the bug, all tests included. Raises DataError."""
    package = packages.package(task.base.package)
    if task.base.sha256 and task.base.sha256 != package.sha256:
        what = f"{task.base.package} {task.base.version}"
        raise DataError(f"the task {task.id!r} is of {what}, which packages.py does not pin (it has {package.version})")
    shutil.copytree(pristine(package), to, symlinks=True, dirs_exist_ok=True)
    if task.base.bug:
        diffs.apply(task.base.bug, to)
    return to


def agent_tree(task: SweTask) -> Path:
    """Return the repository that the agent gets for a package's task, in the cache; made at the first call. Nobody writes there."""
    made_of = [_RECIPE, task.base.package, task.base.sha256, task.base.bug, task.hidden, visible(task)]
    folder = cache_dir() / "swe" / "trees" / hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]
    if not folder.is_dir():
        with atomic_folder(folder) as new:
            broken(task, new)
            for path in () if visible(task) else task.hidden:
                FolderPlace(new).remove(path)
            done = subprocess.run(
                ["bash", "-c", _ONE_COMMIT],
                cwd=new,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nowhere", "FORCE": "-f", **_GIT},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise EnvError(f"cannot make the repository of the task {task.id!r}: {done.stderr.strip()[-500:]} (is git installed?)")
    return folder


def open_for_agent(task: SweTask, backend: Backend, limits: Limits) -> Sandbox:
    """Open the sandbox of an episode. Raises EnvError, DataError."""
    if not task.image:
        package = packages.package(task.base.package)
        tree = agent_tree(task)
        return backend.open(tree, limits=limits, env={"PYTHONPATH": os.path.normpath(os.path.join(TREE, package.path))})
    box = backend.open(None, image=task.image, limits=limits, env={"PATH": IMAGE_PATH})
    with _closed_on_error(box):
        apply(task.base.bug, BoxPlace(box))
        for path in () if visible(task) else task.hidden:
            BoxPlace(box).remove(path)
        _must(box, _ONE_COMMIT, "make its repository one commit", _GIT)
        box.snapshot()
    return box


def apply(diff: str, place: Place) -> None:
    """Apply a diff to a place. Raises DataError where it does not fit."""
    for file in diffs.parse(diff):
        before = b"" if file.old is None else place.read(file.old)
        if before is None:
            raise DataError(f"a diff changes {file.old}, which is not there")
        try:
            after = diffs.patched(before.decode(), file)
        except UnicodeDecodeError as e:
            raise DataError(f"a diff changes {file.old}, which is no text: {e}") from e
        if file.old is not None and file.old != file.new:
            place.remove(file.old)
        if file.new is not None:
            place.write(file.new, after.encode())


@contextlib.contextmanager
def _closed_on_error(box: Sandbox) -> Iterator[None]:
    try:
        yield
    except BaseException:
        box.close()
        raise


def _must(box: Sandbox, command: str, what: str, env: Mapping[str, str] = {}) -> str:
    """Run a command of ours in a sandbox that nobody else has used. Raises EnvError where it fails."""
    done = box.run(command, timeout=300.0, env=env)
    if done.code != 0:
        raise EnvError(f"the sandbox cannot {what} (status {done.code}): {done.output.strip()[-500:]}")
    return done.output


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder for as long as it is needed; it is removed even if this process is killed, by the next that opens a sandbox."""
    place = owner.folder()
    try:
        tree = place / "tree"
        tree.mkdir(mode=0o755)
        yield tree
    finally:
        owner.discard(place)
