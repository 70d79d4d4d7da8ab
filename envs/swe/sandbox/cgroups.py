"""Limits by control groups, version 1 and 2, for processes that this process starts: a group of its own for each sandbox, below or beside our own."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from agentgym.errors import EnvError

from .types import Limits

CONTROLLERS = ("pids", "memory", "cpu")
_PREFIX = "agentgym-"
_PERIOD = 100_000  # microseconds


@functools.cache
def places() -> dict[str, Path]:
    """Return the folder in which a group can be made, for each controller where one can."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found: dict[str, Path] = {}
    for mount, root, kind, options in _mounts():
        for controller in CONTROLLERS:
            if kind == "cgroup" and controller in options:
                folder = mount / os.path.relpath(own.get(controller, "/"), root)
            elif kind == "cgroup2" and controller in _words(mount / "cgroup.controllers"):
                folder = (mount / os.path.relpath(own.get("", "/"), root)).resolve()
                folder = folder if folder == mount else folder.parent  # a group with processes has no groups with limits below it
            else:
                continue
            if _works(folder, controller):
                found.setdefault(controller, folder)
    return found


class Group:
    """One sandbox's control groups.

    controllers  those that limit it
    join         the files into which a process writes its number, or 0 for itself, to be limited
    """

    def __init__(self, name: str, limits: Limits) -> None:
        """Make the groups. Raises EnvError where a limit cannot be set."""
        self._folders: list[Path] = []
        self.controllers = tuple(places())
        try:
            for controller, place in places().items():
                folder = place / (_PREFIX + name)
                folder.mkdir(exist_ok=True)
                if folder not in self._folders:
                    self._folders.append(folder)
                for file, value in _values(controller, limits, v2=_is_v2(folder)):
                    if (folder / file).exists():
                        (folder / file).write_text(value, "utf-8")
        except OSError as e:
            self.remove()
            raise EnvError(f"cannot set the limits of the sandbox in {e.filename}: {e.strerror}") from e
        self.join = [str(folder / "cgroup.procs") for folder in self._folders]

    @property
    def folders(self) -> list[str]:
        """The groups' folders."""
        return [str(folder) for folder in self._folders]

    def remove(self) -> None:
        """Remove the groups; what still runs in them is killed."""
        for folder in self._folders:
            remove(folder)
        self._folders = []


def remove(folder: Path, patience: float = 5.0) -> None:
    """Kill what runs in a group, and remove it."""
    give_up = time.monotonic() + patience
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > give_up:
                return  # the next start tries again
        for pid in _words(folder / "cgroup.procs"):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)


def _values(controller: str, limits: Limits, *, v2: bool) -> list[tuple[str, str]]:
    """Return the files and what is written into them, in this order."""
    memory, quota = str(limits.memory_mb << 20), str(int(limits.cpus * _PERIOD))
    if controller == "pids":
        return [("pids.max", str(limits.pids))]
    if controller == "memory":
        if v2:
            return [("memory.max", memory), ("memory.swap.max", "0")]
        return [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]
    return [("cpu.max", f"{quota} {_PERIOD}")] if v2 else [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", quota)]


def _mounts() -> Iterator[tuple[Path, str, str, set[str]]]:
    """Return (folder, the group that it shows, cgroup or cgroup2, options) of each hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split()
            yield Path(fields[4]), fields[3], kind, set(options.split(","))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").split()
    except OSError:
        return []


def _is_v2(folder: Path) -> bool:
    return (folder / "cgroup.controllers").exists()


def _works(place: Path, controller: str) -> bool:
    """Return whether a group can be made there and the controller's limits can be set."""
    if not os.access(place, os.W_OK):
        return False
    trial = place / f"{_PREFIX}trial-{os.getpid()}"
    try:
        if _is_v2(place) and controller not in _words(place / "cgroup.subtree_control"):
            (place / "cgroup.subtree_control").write_text(f"+{controller}", "utf-8")
        trial.mkdir(exist_ok=True)
        try:
            for file, value in _values(controller, Limits(), v2=_is_v2(place)):
                if (trial / file).exists():
                    (trial / file).write_text(value, "utf-8")
                elif file in ("pids.max", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us"):
                    return False
        finally:
            trial.rmdir()
    except OSError:
        return False
    return True
