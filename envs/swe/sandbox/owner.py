"""Who a sandbox belongs to, and the removal of what dead owners left: containers, folders, control groups, processes.

An owner is a process: its number, its start time, and the boot and process namespace in which these mean something. What cannot be judged from here
(an owner on another machine, or in another container) is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agentgym.errors import EnvError

from . import cgroups

Reaper = Callable[[], int]
_lock = threading.RLock()
_open: dict[int, Closable] = {}
_reapers: list[Reaper] = []
_state = {"pid": 0, "count": 0, "reaped": 0}


class Closable(Protocol):
    def abort(self) -> None: ...

    def close(self) -> None: ...


class Owner(NamedTuple):
    """One process. start: clock ticks after boot; space: its process namespace; boot and host: hashes."""

    pid: int
    start: int
    space: int
    boot: str
    host: str

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Read what `str` wrote; None for anything else."""
        parts = text.split("-")
        if len(parts) != 5 or not all(part.isdigit() for part in parts[:3]):
            return None
        return cls(int(parts[0]), int(parts[1]), int(parts[2]), parts[3], parts[4])


def me() -> Owner:
    """Return this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    space = os.stat("/proc/self/ns/pid").st_ino
    return Owner(os.getpid(), started(os.getpid()) or 0, space, _hash(boot), _hash(socket.gethostname()))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None where there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def dead(owner: Owner) -> bool:
    """Return whether an owner is known to have ended."""
    mine = me()
    if owner.host != mine.host:
        return False
    if owner.boot != mine.boot:
        return True
    return owner.space == mine.space and started(owner.pid) != owner.start


def base() -> Path:
    """Return the folder for what sandboxes need on the host.

    $AGENTGYM_RUN, else one in /var/tmp, or in the temporary folder where that is not there: archives are kept in it, so it should be on a disk.
    Raises EnvError where it cannot be made or belongs to somebody else.
    """
    own = os.environ.get("AGENTGYM_RUN")
    if own:
        folder = Path(own).absolute()
    else:
        folder = Path("/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()) / f"agentgym-{os.getuid()}"
    try:
        folder.mkdir(mode=0o711, parents=bool(own), exist_ok=True)
        seen = folder.lstat()
    except OSError as e:
        raise EnvError(f"cannot make the folder {folder} for sandboxes: {e.strerror}; set AGENTGYM_RUN to one that you can write to") from e
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise EnvError(f"{folder} is not a folder of this user; set AGENTGYM_RUN to one that is")
    return folder


def folder() -> Path:
    """Return a new folder for one sandbox, below this process's own; close() of the sandbox removes it."""
    with _lock:
        _fresh()
        _state["count"] += 1
        new = base() / str(me()) / str(_state["count"])
        new.parent.mkdir(mode=0o711, exist_ok=True)
        new.mkdir(mode=0o711)
        return new


def note(place: Path, **content: Any) -> None:
    """Write down what has to be removed with a sandbox's folder: `pids` and `groups`."""
    part = place / "note.part"
    part.write_text(json.dumps(content), "utf-8")
    part.replace(place / "note.json")


def discard(place: Path) -> None:
    """Remove a sandbox's folder and what its note names. Nothing of it may be in use."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads((place / "note.json").read_text("utf-8"))
        for pid, start in content.get("pids", []):
            if started(pid) == start:
                os.kill(pid, signal.SIGKILL)
        for group in content.get("groups", []):
            cgroups.remove(Path(group))
    remove_tree(place)
    with _lock, contextlib.suppress(OSError):  # the lock: another thread may just be making its folder in there
        place.parent.rmdir()


def remove_tree(place: Path) -> None:
    """Remove a folder and all below it, whatever its rights; nothing where there is none, or where something is mounted below it."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()]
    if any(name == str(place) or name.startswith(f"{place}/") for name in mounted):
        return
    for folder, folders, _ in os.walk(place):
        for name in folders:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
    shutil.rmtree(place, ignore_errors=True)


def register(sandbox: Closable) -> None:
    """Close a sandbox at the latest when this process ends, by itself or by SIGTERM."""
    with _lock:
        _fresh()
        _open[id(sandbox)] = sandbox


def forget(sandbox: Closable) -> None:
    """Undo `register`."""
    with _lock:
        _open.pop(id(sandbox), None)


def add_reaper(reaper: Reaper) -> None:
    """Have `reap` call one more function, which removes something of dead owners and returns how much."""
    with _lock:
        if reaper not in _reapers:
            _reapers.append(reaper)


def reap() -> int:
    """Remove what dead owners left; return how many sandboxes that were."""
    found = 0
    with _lock:
        for place in _places():
            discard(place)
            found += 1
        for reaper in _reapers:
            try:
                found += reaper()
            except EnvError as e:  # an engine that fails must not keep another backend from working
                warnings.warn(f"sandboxes of dead owners may be left: {e}", stacklevel=2)
    return found


def reap_once() -> None:
    """Call `reap` before this process's first sandbox."""
    with _lock:
        if _state["reaped"] != os.getpid():
            _state["reaped"] = os.getpid()
            reap()


def close_all() -> None:
    """Close every sandbox of this process."""
    with _lock:
        mine = list(_open.values()) if _state["pid"] == os.getpid() else []
    for sandbox in mine:
        sandbox.abort()
    for sandbox in mine:
        with contextlib.suppress(EnvError, OSError):
            sandbox.close()


def _places() -> Iterator[Path]:
    """Return the folders of dead owners' sandboxes."""
    try:
        owners = list(base().iterdir())
    except (OSError, EnvError):
        return
    for place in owners:
        owner = Owner.parse(place.name)
        if owner and dead(owner):
            yield from sorted(place.iterdir())
            with contextlib.suppress(OSError):
                place.rmdir()


def _fresh() -> None:
    """Make this process an owner: what a parent has open is not a forked child's to close."""
    if _state["pid"] == os.getpid():
        return
    _open.clear()
    _state.update(pid=os.getpid(), count=0)
    atexit.register(close_all)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _: Any) -> None:
    close_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
