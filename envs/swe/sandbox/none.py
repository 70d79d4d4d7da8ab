"""No sandbox: commands run as this user on this machine, in a copy of the work tree. Only for code that you trust."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from agentgym.errors import ConfigError, EnvError

from . import owner
from .base import Base, environment
from .local import Guest, full
from .shell import ARGV, Shell
from .types import TREE, Limits, Sandbox

_WARNING = (
    "sandbox none: the agent's commands run as you, on this machine, with your files and your network; "
    "use docker or bubblewrap for code that you do not trust"
)
_GUEST = Path(__file__).with_name("guest.py")


class Unsandboxed:
    """The backend `none`; it says what it is each time that one is made."""

    name = "none"

    def __init__(self) -> None:
        warnings.warn(_WARNING, stacklevel=3)

    def available(self) -> str | None:
        return None if sys.platform.startswith("linux") else "the backend none needs Linux"

    def describe(self) -> dict[str, str]:
        return {
            "work tree": "a copy, in a folder of its own; /testbed means that folder for read and write, not for commands",
            "time": "every process that a command started is found by its parent and ended",
            "disk, memory, pids, cpus, network, user, rights, system calls": "not limited",
        }

    def open(self, tree: Path | None, *, image: str | None = None, limits: Limits = Limits(), env: Mapping[str, str] = {}) -> Sandbox:
        if image is not None or tree is None:
            raise ConfigError(f"the backend none has no images (image={image!r}): give a folder as tree, or use the backend docker")
        if not Path(tree).is_dir():
            raise ConfigError(f"the work tree {tree} is no folder")
        owner.reap_once()
        path = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return UnsandboxedTree(Path(tree).resolve(), limits, {"PATH": path, **env})


class UnsandboxedTree(Base):
    """A copy of a tree, and a guest that runs as this user. `tree` is where the copy is."""

    def __init__(self, tree: Path, limits: Limits, env: Mapping[str, str]) -> None:
        super().__init__(limits)
        self._folder = owner.folder()
        self._clean, self.tree = tree, str(self._folder / "work")
        self._kept = 0
        self._guest: Guest | None = None
        try:
            self._process, self._guest = _start_guest()
            owner.note(self._folder, pids=[(self._process.pid, owner.started(self._process.pid))])
            self._fill()
            self._env = environment({"HOME": str(self._folder / "home"), "TMPDIR": str(self._folder / "home"), **env})
        except BaseException:
            self.close()
            raise

    def _bash(self, env: Mapping[str, str]) -> Shell:
        assert self._guest
        try:
            return Shell(self._guest.spawn(ARGV, {**self._env, **env}, self.tree))
        except OSError as e:
            if full(e):
                raise BlockingIOError(str(e)) from e
            raise EnvError(f"cannot start a shell: {e}") from e

    def _end_processes(self) -> None:
        assert self._guest
        self._guest.end_processes()

    def _read(self, path: str, limit: int) -> bytes:
        assert self._guest
        return self._guest.read(self._inside(path), limit)

    def _write(self, path: str, data: bytes) -> None:
        assert self._guest
        self._guest.write(self._inside(path), data)

    def _snapshot(self) -> None:
        self._end_processes()
        self._kept += 1
        kept = self._folder / f"kept{self._kept}"
        shutil.copytree(self.tree, kept, symlinks=True)
        owner.remove_tree(self._folder / f"kept{self._kept - 1}")
        self._clean = kept

    def _reset(self) -> None:
        self._end_processes()
        for name in ("work", "home"):
            owner.remove_tree(self._folder / name)
        self._fill()

    def _fill(self) -> None:
        (self._folder / "home").mkdir()
        shutil.copytree(self._clean, self.tree, symlinks=True)

    def _abort(self) -> None:
        if self._guest:
            self._guest.abort()

    def _close(self) -> None:
        if self._guest:
            self._guest.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
        owner.discard(self._folder)

    def _inside(self, path: str) -> str:
        """Return where a path of the sandbox is on this machine."""
        if path == TREE or path.startswith(f"{TREE}/"):
            path = path[len(TREE) + 1 :]
        return os.path.join(self.tree, path)


def _start_guest() -> tuple[subprocess.Popen[bytes], Guest]:
    mine, its = socket.socketpair()
    config = json.dumps({"alone": False, "rlimits": {"RLIMIT_CORE": 0}})
    with its:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUEST), str(its.fileno()), config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            cwd="/",
        )
    return process, Guest(mine)
