"""Sandboxes by bubblewrap: no daemon, one Debian package, about 0.1 s to open.

A sandbox is a holder (holder.py: mounts, control groups), its bwrap (bwrap.py), and in there process 1, a guest (guest.py), which starts what the
agent asks for.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError, EnvError

from . import bwrap, cgroups, owner, seccomp
from .base import Base, environment
from .local import Guest, full
from .python import Python, python_tree
from .shell import ARGV, Shell
from .types import TREE, Limits, Sandbox, SandboxMissing

_HERE = Path(__file__).parent
_USERS = 2_000_000_000  # root starts each sandbox as a user of its own: this plus a process number
_START_S = 30.0


class Bubblewrap:
    """The backend. packages: what the sandbox's Python has besides its standard library."""

    name = "bubblewrap"

    def __init__(self, packages: tuple[str, ...] = ("pytest",)) -> None:
        self._packages = packages

    def available(self) -> str | None:
        return bwrap.lacking()

    def describe(self) -> dict[str, str]:
        groups = cgroups.places()
        limited = [*(["pids control group"] if "pids" in groups else []), *(["RLIMIT_NPROC"] if os.getuid() or bwrap.drops() else [])]
        user = "a number of its own that no user has" if bwrap.drops() else "the one who runs this"
        return {
            "work tree": "overlay over the given tree (without root's rights a copy of trees up to 256 MB), in a mount namespace of its own",
            "disk": "what is added to the work tree is in a tmpfs of disk_mb, /tmp and /dev/shm in smaller ones; all else is read-only",
            "memory": "memory control group"
            if "memory" in groups
            else "RLIMIT_AS of each process, tmpfs not counted: no control group can be made here",
            "pids": " and ".join(limited) or "not limited: root's processes have no limit without a control group",
            "cpus": "cpu control group" if "cpu" in groups else "whole cores (affinity, rounded up): no control group can be made here",
            "file size": "RLIMIT_FSIZE of disk_mb",
            "user": f"1000, on this machine {user}",
            "rights": "no capabilities, no new privileges, user, pid, network, ipc, uts and cgroup namespaces of its own",
            "network": "none but its own loopback",
            "system calls": f"{len(seccomp.DENIED)} refused by seccomp, and new namespaces",
        }

    def open(self, tree: Path | None, *, image: str | None = None, limits: Limits = Limits(), env: Mapping[str, str] = {}) -> Sandbox:
        if image is not None or tree is None:
            raise ConfigError(f"bubblewrap has no images (image={image!r}): give a folder as tree, or use the backend docker")
        if not Path(tree).is_dir():
            raise ConfigError(f"the work tree {tree} is no folder")
        if missing := self.available():
            raise SandboxMissing(missing)
        owner.reap_once()
        return BubblewrapSandbox(Path(tree).resolve(), python_tree(self._packages), limits, environment({"PATH": bwrap.PATH, **env}))


class BubblewrapSandbox(Base):
    """One sandbox. Raises EnvError where it cannot be started."""

    def __init__(self, tree: Path, python: Python, limits: Limits, env: Mapping[str, str]) -> None:
        super().__init__(limits)
        self._env = dict(env)
        self._guest: Guest | None = None
        self._folder = owner.folder()
        self._group: cgroups.Group | None = None
        self._cores = None if "cpu" in cgroups.places() else _some_cores(limits.cpus)
        self._holder: _Holder | None = None
        try:
            self._group = cgroups.Group(f"{self._folder.parent.name}-{self._folder.name}", limits)
            self._holder = _Holder()
            self._note()
            self._holder.ask(
                "setup",
                place=str(self._folder),
                tree=str(tree),
                user=_USERS + self._holder.pid if bwrap.drops() else 0,
                disk=limits.disk_mb,
                binds={"python": str(python.folder), **{f"extra{name}": str(file) for name, file in python.libraries.items()}},
                files=bwrap.FILES,
                folders=bwrap.FOLDERS,
            )
            self._argv = bwrap.arguments(self._folder, python, limits)
            self._config = json.dumps({"alone": True, "rlimits": self._rlimits()})
            self._start()
        except BaseException:
            self.close()
            raise

    def _bash(self, env: Mapping[str, str]) -> Shell:
        try:
            return Shell(self._there().spawn(ARGV, {**self._env, **env}, TREE))
        except OSError as e:
            if full(e):
                raise BlockingIOError(str(e)) from e
            raise EnvError(f"the sandbox cannot start a shell: {e}") from e

    def _end_processes(self) -> None:
        self._there().end_processes()

    def _read(self, path: str, limit: int) -> bytes:
        return self._there().read(os.path.join(TREE, path), limit)

    def _write(self, path: str, data: bytes) -> None:
        self._there().write(os.path.join(TREE, path), data)

    def _snapshot(self) -> None:
        self._stop()
        self._held().ask("keep")
        self._start()

    def _reset(self) -> None:
        self._stop()
        self._held().ask("fresh")
        self._start()

    def _abort(self) -> None:
        if self._guest:
            self._guest.abort()

    def _close(self) -> None:
        if self._guest:
            self._guest.close()
        if self._holder:
            self._holder.close()
        if self._group:
            self._group.remove()
        owner.discard(self._folder)

    def _start(self) -> None:
        """Start bwrap and wait for its guest."""
        mine, its = socket.socketpair()
        rules = os.memfd_create("seccomp")
        try:
            os.write(rules, seccomp.program(pin_cores=self._cores is not None))
            assert self._group
            pid = self._held().ask("start", [its.fileno(), rules], argv=[*self._argv, self._config], join=self._group.join, cores=self._cores)["pid"]
        finally:
            its.close()
            os.close(rules)
        self._guest = Guest(mine)
        self._note(pid)
        if not self._guest.ping():
            said = self._stop()
            raise EnvError(f"bubblewrap cannot start a sandbox here: {said or 'it ended without a word'}")

    def _stop(self) -> str:
        """End the sandbox, not its mounts; return what it said on stderr."""
        if self._guest:
            self._guest.close()
            self._guest = None
        return str(self._held().ask("stop")["said"]).strip()

    def _note(self, *pids: int) -> None:
        """Leave word of what has to be removed if this process is killed."""
        all_pids = [*pids, *([self._holder.pid] if self._holder else [])]
        owner.note(self._folder, pids=[(pid, owner.started(pid)) for pid in all_pids], groups=self._group.folders if self._group else [])

    def _there(self) -> Guest:
        if self._guest is None:
            raise EnvError("the sandbox has ended; reset it, or close it and open another one")
        return self._guest

    def _held(self) -> _Holder:
        assert self._holder
        return self._holder

    def _rlimits(self) -> dict[str, int]:
        """Return the limits of each process in there."""
        disk = (self.limits.disk_mb + 1) << 20
        limits = {"RLIMIT_NPROC": self.limits.pids, "RLIMIT_FSIZE": disk, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 4096, "RLIMIT_MSGQUEUE": 1 << 20}
        if "memory" not in cgroups.places():
            limits["RLIMIT_AS"] = self.limits.memory_mb << 20
        return limits


class _Holder:
    """A process of holder.py."""

    def __init__(self) -> None:
        self._mine, its = socket.socketpair()
        self._mine.settimeout(120)  # a copy of a large tree takes its time
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "holder.py"), str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd="/",
            )
        self.pid = self._process.pid
        self._buffer = b""

    def ask(self, do: str, fds: list[int] | None = None, **request: Any) -> dict[str, Any]:
        """Have it do something. Raises EnvError where it cannot."""
        message = json.dumps({"do": do, **request}).encode() + b"\n"
        try:
            if fds:
                sent = socket.send_fds(self._mine, [message], fds)
                self._mine.sendall(message[sent:])
            else:
                self._mine.sendall(message)
            while b"\n" not in self._buffer:
                data = self._mine.recv(1 << 16)
                if not data:
                    raise EOFError("it has ended")
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\n")
            answer: dict[str, Any] = json.loads(line)
        except (OSError, EOFError, ValueError) as e:
            raise EnvError(f"the sandbox's holder does not answer ({e or type(e).__name__}); close the sandbox and open another one") from e
        if "error" in answer:
            raise EnvError(f"bubblewrap cannot {do} a sandbox here: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it, and with it the sandbox and its mounts."""
        self._mine.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


def _some_cores(cpus: float) -> list[int]:
    """Return as many cores as the limit asks for, any of those that this process may use."""
    mine = sorted(os.sched_getaffinity(0))
    return random.sample(mine, min(len(mine), math.ceil(cpus)))
