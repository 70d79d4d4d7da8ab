"""A role in a child process: how it is started, watched, started anew, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import secrets
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from multiprocessing import parent_process
from multiprocessing.connection import Connection, Listener
from typing import Any

from agentgym.errors import PolicyError

from ._place import Host
from ._shared import Reader
from ._wire import Wire

_CLOSING = 15.0  # seconds in which a role may close what it holds
_GRACE = 10.0  # the same, when the run was killed
_UNHEARD = 3  # processes in a row that end before they answer anything: then another one would too
_LOOK = 0.1  # seconds between two looks at whether a child lives


class ChildPlace:
    """A child process with one role, as the process that started it sees it."""

    def __init__(self, context: Any, key: bytes, name: str, env: dict[str, str], make: Callable[..., Any], args: Any, *, restart: bool) -> None:
        self.name, self.ended, self._reason = name, False, ""
        self._context, self._key, self._restart = context, key, restart
        self._address = _address()
        self._args = (self._address, key, env, make, args)
        self._wire = Wire(self._address, key, name, owned=True)
        self._start()
        threading.Thread(target=self._watch, name=f"agentgym-watch-{name}", daemon=True).start()

    def __reduce__(self) -> Any:
        return Wire, (self._address, self._key, self.name)

    @property
    def pid(self) -> int | None:
        """Return the process's id."""
        return self._process.pid  # type: ignore[no-any-return]

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the role."""
        return self._wire.call(method, *args)

    def kill(self, reason: str) -> None:
        """End the process at once."""
        self._reason = reason
        self._process.kill()

    def close(self) -> None:
        """Let the role close what it holds, then end the process."""
        if self.ended:
            return
        self._restart = False
        closing = self._wire.call("close")
        wait_for([closing], timeout=_CLOSING if self._wire.spoke else 0)  # one that is still starting has nothing to close
        self._process.kill()
        until = time.monotonic() + 5
        while not self.ended and time.monotonic() < until:
            time.sleep(0.01)
        self._wire.close(f"{self.name} was ended")

    def _start(self) -> None:
        self._process = self._context.Process(target=_child, args=self._args, name=f"agentgym-{self.name}", daemon=True)
        self._wire.spoke = False
        self._process.start()

    def _watch(self) -> None:
        """Look after the process: nobody else asks the system for its end, since only one who asks gets an answer."""
        unheard = 0
        while True:
            while (code := self._process.exitcode) is None:
                time.sleep(_LOOK)
            hint = "; -9 is often the system being out of memory" if code == -9 and not self._reason else ""
            reason = f"{self._reason} and was ended" if self._reason else f"died (exit code {code}{hint})"
            self._reason = ""
            unheard = 0 if self._wire.spoke else unheard + 1
            if not self._restart or unheard == _UNHEARD:
                self.ended = True
                self._wire.close(f"{self.name} {reason}")
                return
            self._wire.drop(f"{self.name} {reason}")
            self._start()


def _address() -> str:
    """Return an address for a socket; on Linux in the abstract space, where nothing is left behind."""
    name = f"agentgym-{os.getpid()}-{secrets.token_hex(6)}"
    return f"\0{name}" if sys.platform == "linux" else os.path.join(tempfile.gettempdir(), name)


def _child(address: str, key: bytes, env: dict[str, str], make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Entry point of the child: serve until it is told to end, or until the run is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's affair
    os.environ.update(env)
    asyncio.run(_serve(address, key, Host(make, args)))


async def _serve(address: str, key: bytes, host: Host) -> None:
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    if not address.startswith("\0"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)  # of one that was killed in this place
    listener = Listener(address, "AF_UNIX", backlog=64, authkey=key)
    threading.Thread(target=_accept, args=(listener, host, loop), name="agentgym-accept", daemon=True).start()
    threading.Thread(target=_follow, args=(loop, gone), name="agentgym-follow", daemon=True).start()
    await gone.wait()
    with contextlib.suppress(Exception):
        await asyncio.wait_for(host.call("close", ()), _GRACE / 2)
    os._exit(0)  # threads of environments that hang must not keep it


def _follow(loop: asyncio.AbstractEventLoop, gone: asyncio.Event) -> None:
    """End this process when the one that started it is gone, at last even when an environment holds the event loop."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(gone.set)
    time.sleep(_GRACE)
    os._exit(1)


def _accept(listener: Listener, host: Host, loop: asyncio.AbstractEventLoop) -> None:
    while True:
        with contextlib.suppress(OSError, EOFError):  # who gave up while it connected, or knows no key
            connection = listener.accept()
            threading.Thread(target=_listen, args=(connection, host, loop), name="agentgym-listen", daemon=True).start()


def _listen(connection: Connection, host: Host, loop: asyncio.AbstractEventLoop) -> None:
    lock = threading.Lock()
    with contextlib.suppress(EOFError, OSError):
        while True:
            data = connection.recv_bytes()
            loop.call_soon_threadsafe(_begin, connection, lock, host, data)


def _begin(connection: Connection, lock: threading.Lock, host: Host, data: bytes) -> None:
    task = asyncio.get_running_loop().create_task(_answer(connection, lock, host, data))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


async def _answer(connection: Connection, lock: threading.Lock, host: Host, data: bytes) -> None:
    ticket, method, packed = pickle.loads(data)
    try:
        args = tuple(a.load() if isinstance(a, Reader) else a for a in pickle.loads(packed))
        reply = pickle.dumps((ticket, await host.call(method, args)), protocol=5)
    except Exception as e:  # what cannot be read here, or sent: the other side waits for an answer
        reply = pickle.dumps((ticket, ("error", PolicyError(f"{method}: {type(e).__name__}: {e}"), traceback.format_exc())), protocol=5)
    with lock, contextlib.suppress(OSError):  # who asked is gone; else its reader drains the socket as long as it lives
        connection.send_bytes(reply)
