"""A Docker or Podman engine: how it is found, asked, and read from."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Any, Literal

from agentgym.errors import EnvError

from .types import SandboxMissing

INSTALL = "apt-get install -y --no-install-recommends docker.io, and start dockerd (see docker/engine)"
SDK = "pip install docker"
CALL_S = 60.0  # no call to the engine takes longer, or it has failed
_KINDS: dict[int, Literal["out", "control"]] = {1: "out", 2: "control"}
_HEADER = struct.Struct(">BxxxL")
_BLOCK = 1 << 18
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def host() -> str:
    """Return the engine's address: $DOCKER_HOST, else the first of the usual sockets that is there."""
    if own := os.environ.get("DOCKER_HOST"):
        return own
    home = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    usual = ["/var/run/docker.sock", f"{home}/docker.sock", "/run/podman/podman.sock", f"{home}/podman/podman.sock"]
    return "unix://" + next((path for path in usual if os.path.exists(path)), usual[0])


def client(timeout: float = CALL_S) -> Any:
    """Return a client of the engine. Raises SandboxMissing where there is none, or no SDK."""
    try:
        import docker
    except ImportError as e:
        raise SandboxMissing(f"the Docker SDK is not installed ({e}): {SDK}") from e
    options = docker.utils.kwargs_from_env()
    options["base_url"] = options.get("base_url") or host()
    try:
        return docker.APIClient(**options, version="auto", timeout=timeout)
    except (docker.errors.DockerException, OSError) as e:
        raise SandboxMissing(f"no Docker engine answers at {options['base_url']} ({str(e)[:200]}): {INSTALL}, or set DOCKER_HOST") from e


def is_podman(api: Any) -> bool:
    """Return whether an engine is Podman, whose version of Docker's interface leaves some things out."""
    return any("podman" in part.get("Name", "").lower() for part in api.version().get("Components") or [])


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn what goes wrong between us and the engine into EnvError."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as e:
        raise EnvError(f"the Docker engine cannot {what}: {str(e)[:500]}") from e


class Stream:
    """The streams of a process in a container, multiplexed on one connection."""

    ordered = False

    def __init__(self, connection: Any) -> None:
        self._kept = connection  # the SDK's wrapper, which would close the socket when it goes
        self._socket: socket.socket = getattr(connection, "_sock", connection)
        self._head = b""
        self._kind: Literal["out", "control"] = "out"
        self._left = 0  # bytes of the current frame that have not come
        self._ended = False
        self._buffer = bytearray(_BLOCK)

    def send(self, data: bytes, deadline: float) -> None:
        with contextlib.suppress(OSError):  # its end shows when we read
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.sendall(data)

    def send_some(self, data: bytes) -> int:
        """Write what it takes now, waiting a moment where it takes nothing; return how many bytes that were."""
        self._socket.settimeout(0.05)
        try:
            return self._socket.send(data)
        except (TimeoutError, *_NOT_YET):
            return 0
        except OSError:
            return len(data)  # its end shows when we read

    def end_input(self) -> None:
        """Close its stdin."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def poll(self, timeout: float) -> list[tuple[Literal["out", "control", "end"], bytes]]:
        if self._ended:
            return [("end", b"")]
        try:
            self._socket.settimeout(max(0.0, timeout))
            size = self._socket.recv_into(self._buffer)
        except (TimeoutError, *_NOT_YET):
            return []
        except OSError:
            size = 0
        if not size:
            self._ended = True
            return [("end", b"")]
        return list(self._frames(memoryview(self._buffer)[:size]))

    def _frames(self, data: memoryview) -> Iterator[tuple[Literal["out", "control"], bytes]]:
        """Yield what the frames hold, neighbours of one kind together: a frame may have few bytes."""
        parts: list[memoryview] = []
        while data:
            if self._left:
                parts.append(data[: self._left])
                data = data[self._left :]
                self._left -= len(parts[-1])
                continue
            need = 8 - len(self._head)
            self._head, data = self._head + bytes(data[:need]), data[need:]
            if len(self._head) == 8:
                number, self._left = _HEADER.unpack(self._head)
                self._head, kind = b"", _KINDS.get(number, "out")
                if kind != self._kind and parts:
                    yield self._kind, b"".join(parts)
                    parts = []
                self._kind = kind
        if parts:
            yield self._kind, b"".join(parts)

    def abort(self) -> None:
        """End both directions; a thread that waits sees the end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.abort()
        with contextlib.suppress(OSError):
            self._kept.close()
            self._socket.close()
