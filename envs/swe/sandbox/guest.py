"""Process number 1 of a sandbox: starts and ends processes, reads and writes files, as the owner at the other end of a socket asks.

Runs with the sandbox's own Python as `python -I -S guest.py FD CONFIG` and imports nothing of agentgym. A message is two numbers (length of a JSON
object, length of what follows it), the object, and bytes; with `spawn` come three file descriptors. When the owner goes, so does all that runs here.
"""

from __future__ import annotations

import array
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from typing import Any

_DUMPABLE, _SUBREAPER = 4, 36  # prctl
_libc = ctypes.CDLL(None)


class Guest:
    """Serves one owner. `alone`: this is process 1 of its own namespace, so that all others are its to end."""

    def __init__(self, owner: socket.socket, alone: bool) -> None:
        self._owner, self._alone = owner, alone
        self._children: dict[int, int] = {}  # pid → the control pipe, which hears how it ended
        _libc.prctl(_DUMPABLE, 0, 0, 0, 0)  # the agent has the same user: no look into this process's memory and descriptors
        _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Answer until the owner is gone."""
        poll = select.poll()
        poll.register(self._owner, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                for fd, _ in poll.poll():
                    if fd == self._woken:
                        os.read(self._woken, 4096)
                        self._collect()
                    else:
                        self._answer()
        except (EOFError, ConnectionError):
            self._end_all()

    def _answer(self) -> None:
        """Do what one message asks, and say how it went."""
        request, data, fds = self._receive()
        answer, payload = {}, b""
        try:
            answer, payload = getattr(self, f"_do_{request.pop('do')}")(data=data, fds=fds, **request)
        except OSError as e:
            answer = {"errno": e.errno, "error": e.strerror}
        except ValueError:  # a name that no file can have
            answer = {"errno": errno.EINVAL, "error": os.strerror(errno.EINVAL)}
        except MemoryError:
            answer = {"errno": errno.ENOMEM, "error": os.strerror(errno.ENOMEM)}
        finally:
            for fd in fds:
                os.close(fd)
        text = json.dumps(answer).encode()
        self._owner.sendall(struct.pack(">II", len(text), len(payload)) + text)
        self._owner.sendall(payload)

    def _receive(self) -> tuple[dict[str, Any], bytes, list[int]]:
        """Return (the object, the bytes, the file descriptors) of the next message."""
        fds = array.array("i")
        head, extra, _, _ = self._owner.recvmsg(8, socket.CMSG_SPACE(3 * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content)
        size, rest = struct.unpack(">II", head + self._exactly(8 - len(head)) if head else self._exactly(8))
        return json.loads(self._exactly(size)), self._exactly(rest), list(fds)

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            some = self._owner.recv(min(1 << 20, size - len(got)))
            if not some:
                raise EOFError
            got += some
        return bytes(got)

    def _do_spawn(self, argv: list[str], env: dict[str, str], cwd: str, fds: list[int], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Start a process in a session of its own on the three descriptors; the last one, its stderr, hears `gone STATUS` when it has ended."""
        pid = os.fork()
        if pid == 0:
            _become(argv, env, cwd, fds)
        self._children[pid] = os.dup(fds[2])
        return {"pid": pid}, b""

    def _do_end(self, fds: list[int], data: bytes) -> tuple[dict[str, Any], bytes]:
        """End every process but this one."""
        return {"left": self._end_all()}, b""

    def _do_read(self, path: str, limit: int, fds: list[int], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the start of a file."""
        file = _regular(path, os.O_RDONLY)
        try:
            parts = []
            while limit > 0 and (part := os.read(file, min(limit, 1 << 20))):
                parts.append(part)
                limit -= len(part)
        finally:
            os.close(file)
        return {}, b"".join(parts)

    def _do_write(self, path: str, fds: list[int], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Replace the content of a file."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = _regular(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(file, 0)
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        return {}, b""

    def _collect(self) -> int:
        """Take the status of those that have ended; return how many children there still are (at least)."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == 0:
                return 1
            if (control := self._children.pop(pid, None)) is not None:
                code = os.waitstatus_to_exitcode(status)
                try:
                    os.set_blocking(control, False)
                    os.write(control, b"gone %d\n" % (code if code >= 0 else 128 - code))
                except OSError:  # nobody reads it any more
                    pass
                os.close(control)

    def _end_all(self, limit: float = 10.0) -> int:
        """Kill until nothing is left; return how many are still there after `limit` seconds."""
        give_up = time.monotonic() + limit
        while True:
            try:
                if self._alone:
                    os.kill(-1, signal.SIGKILL)
                else:
                    for pid in _descendants(os.getpid()):
                        os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            left = self._collect()
            if not left or time.monotonic() > give_up:
                return left
            time.sleep(0.001)


def _become(argv: list[str], env: dict[str, str], cwd: str, fds: list[int]) -> None:
    """Turn this child into the program; never returns."""
    try:
        os.setsid()
        for target, fd in enumerate(fds):  # these are above 2: 0 to 2 are taken since the start
            os.dup2(fd, target)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # else this would not be ours to write:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("500")  # out of memory: the agent's processes go first
        os.chdir(cwd)
        os.execve(argv[0], [os.path.basename(argv[0]), *argv[1:]], env)
    except BaseException as e:
        os.write(2, f"start {e}\n".encode())
    finally:
        os._exit(127)


def _regular(path: str, flags: int) -> int:
    """Open a regular file: a pipe would keep this process waiting."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o644)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, os.strerror(number) if stat.S_ISDIR(mode) else "Not a regular file")
    return file


def _descendants(root: int) -> list[int]:
    """Return the processes below `root`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    fields = f.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def main() -> None:
    config = json.loads(sys.argv[2])
    os.umask(0o022)
    for name, value in config["rlimits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    owner = socket.socket(fileno=int(sys.argv[1]))
    owner.set_inheritable(False)  # what runs here must not speak with the owner
    Guest(owner, config["alone"]).serve()


if __name__ == "__main__":
    main()
