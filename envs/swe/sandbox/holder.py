"""Keeps the mounts of one bubblewrap sandbox and runs bwrap, in a mount namespace that ends with this process: nothing is ever mounted on the host.

Runs as `python -I -S holder.py FD`; imports mounts.py beside it and nothing of agentgym. The owner sends one JSON object a line over the socket FD
(first `setup`, then `start`, `stop`, `fresh`, `keep`) and gets one back, with `error` where it failed. When the owner goes, so do the sandbox and
this process.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mounts import Mounts, isolate

_SUBREAPER = 36  # prctl
_MESSAGE = 1 << 20


class Holder:
    """One sandbox: its mounts, and its bwrap where it runs."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # the sandbox's first process becomes our child when bwrap dies: we can wait for its end
        self._mounts: Mounts | None = None
        self._user = 0
        self._said = os.memfd_create("said")

    def setup(
        self, place: str, tree: str, user: int, disk: int, binds: dict[str, str], files: dict[str, str], folders: list[str], fds: list[int]
    ) -> dict[str, Any]:
        """Make the mounts. binds and files: what else is needed, by name below the place; a source or a text for each."""
        isolate()
        self._user = user if os.geteuid() == 0 and user != 0 and _maps(user) else 0
        self._mounts = Mounts(place, tree, self._user, disk)
        for name, text in files.items():
            self._mounts.file(name, text)
        for name in folders:
            os.makedirs(name, exist_ok=True)
        for name, source in binds.items():
            self._mounts.bind(source, name)
        return {"copies": self._mounts.copies}

    def start(self, argv: list[str], join: list[str], cores: list[int] | None, fds: list[int]) -> dict[str, Any]:
        """Start bwrap with two descriptors, whose numbers take the place of {guest} and {filter} in its arguments."""
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        pid = os.fork()
        if pid == 0:
            self._become(argv, join, cores, fds)
        return {"pid": pid}

    def stop(self, fds: list[int]) -> dict[str, Any]:
        """End the sandbox's processes; return what bwrap or the guest said on stderr."""
        while True:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            try:
                os.wait()
            except ChildProcessError:
                break
        return {"said": os.pread(self._said, 4000, 0).decode("utf-8", "replace")}

    def fresh(self, fds: list[int]) -> dict[str, Any]:
        """Bring back the clean tree."""
        assert self._mounts
        self._mounts.fresh()
        return {}

    def keep(self, fds: list[int]) -> dict[str, Any]:
        """Make the tree as it is the clean one."""
        assert self._mounts
        self._mounts.keep()
        return {}

    def _become(self, argv: list[str], join: list[str], cores: list[int] | None, fds: list[int]) -> None:
        """Turn this child into bwrap; never returns."""
        try:
            os.dup2(self._said, 2)
            for file in join:
                with open(file, "w") as f:
                    f.write("0")
            if cores:
                os.sched_setaffinity(0, cores)
            if self._user:
                os.setgroups([])
                os.setresgid(self._user, self._user, self._user)
                os.setresuid(self._user, self._user, self._user)
            guest, rules = fds
            os.lseek(rules, 0, os.SEEK_SET)
            for fd in fds:
                os.set_inheritable(fd, True)
            names = {"{guest}": str(guest), "{filter}": str(rules)}
            os.execv(argv[0], [names.get(arg, arg) for arg in argv])
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
        finally:
            os._exit(126)


def _maps(user: int) -> bool:
    """Return whether this user namespace knows the user."""
    with open("/proc/self/uid_map") as f:
        rows = [list(map(int, line.split())) for line in f]
    return any(inside <= user < inside + count for inside, _, count in rows)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        return [int(pid) for pid in f.read().split()]


def _messages(owner: socket.socket) -> Any:
    """Yield (object, descriptors) until the owner is gone."""
    buffer, kept = b"", array.array("i")
    while True:
        data, extra, _, _ = owner.recvmsg(_MESSAGE, socket.CMSG_SPACE(2 * kept.itemsize), socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        for level, kind, content in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                kept.frombytes(content)
        buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            yield json.loads(line), list(kept)
            for fd in kept:
                os.close(fd)
            kept = array.array("i")


def main() -> None:
    owner = socket.socket(fileno=int(sys.argv[1]))
    owner.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the owner's terminal is the owner's business
    os.umask(0o022)
    holder = Holder()
    try:
        for request, fds in _messages(owner):
            try:
                answer = getattr(holder, request.pop("do"))(fds=fds, **request)
            except OSError as e:
                answer = {"error": str(e)}
            owner.sendall(json.dumps(answer).encode() + b"\n")
    except ConnectionError:
        pass
    holder.stop([])


if __name__ == "__main__":
    main()
