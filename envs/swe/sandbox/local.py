"""The owner's end of a guest (guest.py): start processes there and speak with them through pipes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Literal

from agentgym.errors import EnvError

_PIPE = 1 << 18
_BLOCK = 1 << 20
_ANSWER_S = 30.0  # the guest answers at once; a machine that is overloaded may take some seconds


class Pipes:
    """The channel to a process of a guest."""

    ordered = True  # a pipe has what was written as soon as it was written

    def __init__(self, stdin: int, out: int, control: int) -> None:
        self._stdin = stdin
        self._open: dict[int, Literal["out", "control"]] = {out: "out", control: "control"}
        for fd in (stdin, out, control):
            os.set_blocking(fd, False)
        try:
            fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, _PIPE)
        except OSError:  # the user has reached its limit for pipes: a smaller one only takes longer
            pass

    def send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        writable = select.poll()
        writable.register(self._stdin, select.POLLOUT)
        while view and (left := deadline - time.monotonic()) > 0:
            if not writable.poll(1000 * left):
                return
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return

    def poll(self, timeout: float) -> list[tuple[Literal["out", "control", "end"], bytes]]:
        if not self._open:
            return [("end", b"")]
        readable = select.poll()
        for fd in self._open:
            readable.register(fd, select.POLLIN)
        events: list[tuple[Literal["out", "control", "end"], bytes]] = []
        ready = {fd for fd, _ in readable.poll(1000 * timeout)}
        for fd in sorted(ready, key=lambda fd: self._open[fd] == "control"):
            try:
                data = os.read(fd, _BLOCK)
            except BlockingIOError:
                continue
            if data:
                events.append((self._open[fd], data))
            else:
                del self._open[fd]
                os.close(fd)
        return events if self._open or events else [("end", b"")]

    def close(self) -> None:
        for fd in (self._stdin, *self._open):
            if fd >= 0:
                os.close(fd)
        self._stdin, self._open = -1, {}


class Guest:
    """Asks a guest over a socket, one request after the other. Raises EnvError where it does not answer."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        owner.settimeout(_ANSWER_S)

    def spawn(self, argv: list[str], env: Mapping[str, str], cwd: str) -> Pipes:
        """Start a process. Raises BlockingIOError where there is no room for one more."""
        (stdin, mine), (out, its_out), (control, its_control) = os.pipe(), os.pipe(), os.pipe()
        fds = [stdin, its_out, its_control]
        try:
            self._ask({"do": "spawn", "argv": argv, "env": dict(env), "cwd": cwd}, fds=fds)
        except BaseException:
            for fd in (mine, out, control):
                os.close(fd)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        return Pipes(mine, out, control)

    def end_processes(self) -> None:
        """End all that runs."""
        answer, _ = self._ask({"do": "end"})
        if answer["left"]:
            raise EnvError("a process in the sandbox cannot be killed (it waits for a device?); close the sandbox and open another one")

    def read(self, path: str, limit: int) -> bytes:
        """Return the start of a file. Raises OSError."""
        return self._ask({"do": "read", "path": path, "limit": limit})[1]

    def write(self, path: str, data: bytes) -> None:
        """Write a file. Raises OSError."""
        self._ask({"do": "write", "path": path}, data)

    def ping(self) -> bool:
        """Return whether it is there."""
        try:
            self._ask({"do": "read", "path": "/dev/null/none", "limit": 0})
        except NotADirectoryError:
            return True
        except EnvError:
            return False
        return False

    def abort(self) -> None:
        """Have it end all that runs, and itself."""
        with contextlib.suppress(OSError):
            self._owner.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Leave it: it ends all that runs, and itself."""
        self._owner.close()

    def _ask(self, request: dict[str, Any], data: bytes = b"", fds: list[int] | None = None) -> tuple[dict[str, Any], bytes]:
        text = json.dumps(request).encode()
        head = struct.pack(">II", len(text), len(data))
        try:
            if fds:
                socket.send_fds(self._owner, [head], fds)
            else:
                self._owner.sendall(head)
            self._owner.sendall(text + data)
            size, rest = struct.unpack(">II", self._exactly(8))
            answer, payload = json.loads(self._exactly(size)), self._exactly(rest)
        except (EOFError, OSError, ValueError) as e:
            raise EnvError(f"the sandbox has ended or does not answer ({e or type(e).__name__}); close it and open another one") from e
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"], request.get("path"))
        return answer, payload

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            some = self._owner.recv(min(_BLOCK, size - len(got)))
            if not some:
                raise EOFError("closed")
            got += some
        return bytes(got)


def full(e: OSError) -> bool:
    """Return whether an error says that there is no room for one more process."""
    return e.errno in (errno.EAGAIN, errno.ENOMEM)
