"""Calls to a process on this machine over a socket, from any thread; it connects when first used, and again after a restart."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import threading
import time
from concurrent.futures import Future
from multiprocessing.connection import Client, Connection
from typing import Any

from agentgym.errors import LostError

from ._place import fail, settle

_START = 120.0  # seconds until a process must be there: a slow machine needs some to load its libraries

_OWNER = 5.0  # seconds in which who watches a process notices that it ended


class Wire:
    """The caller's end. It travels as an address; `owned`: somebody here watches the process and will say how it ended."""

    def __init__(self, address: str, key: bytes, name: str, *, owned: bool = False) -> None:
        self.name, self.spoke, self._owned = name, False, owned
        self._address, self._key = address, key
        self._outbox: queue.SimpleQueue[tuple[Future[Any], bytes, int] | None] = queue.SimpleQueue()
        self._open: dict[int, Future[Any]] = {}  # calls that were sent
        self._tickets, self._lock = itertools.count(), threading.Lock()
        self._connection: Connection | None = None
        self._dead = ""
        self._talker: threading.Thread | None = None

    def __reduce__(self) -> Any:
        return Wire, (self._address, self._key, self.name)

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the role; sending is a thread's affair, so that a process that hangs lets nobody hang with it."""
        future: Future[Any] = Future()
        with self._lock:
            if self._dead:
                fail(future, LostError(self._dead))
                return future
            if self._talker is None:
                self._talker = threading.Thread(target=self._talk, name=f"agentgym-to-{self.name}", daemon=True)
                self._talker.start()
            ticket = next(self._tickets)
            self._outbox.put((future, pickle.dumps((ticket, method, pickle.dumps(args, protocol=5)), protocol=5), ticket))
        return future

    def close(self, reason: str) -> None:
        """The process is gone for good."""
        with self._lock:
            self._dead = self._dead or reason
            self._outbox.put(None)
        self.drop(reason)

    def drop(self, reason: str) -> None:
        """The process is gone: nobody waits for it any longer. The next call finds the one in its place."""
        with self._lock:
            lost, self._open = self._open, {}
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()
        for future in lost.values():
            fail(future, LostError(reason))

    def _talk(self) -> None:
        while (item := self._outbox.get()) is not None:
            future, data, ticket = item
            try:
                connection = self._connected()
                with self._lock:
                    self._open[ticket] = future
                connection.send_bytes(data)
            except (OSError, EOFError, LostError) as e:
                with self._lock:
                    self._open.pop(ticket, None)
                fail(future, LostError(self._dead or str(e) if isinstance(e, LostError) else f"{self.name} is gone ({type(e).__name__})"))
        while not self._outbox.empty():  # sent to nobody
            if (item := self._outbox.get()) is not None:
                fail(item[0], LostError(self._dead))

    def _connected(self) -> Connection:
        connection, until = self._connection, time.monotonic() + _START
        while connection is None:
            if self._dead:
                raise LostError(self._dead)
            try:
                connection = Client(self._address, "AF_UNIX", authkey=self._key)
            except (OSError, EOFError):  # not there yet
                if time.monotonic() > until:
                    raise LostError(f"{self.name} did not start within {_START:g} s") from None
                time.sleep(0.02)
                continue
            with self._lock:
                self._connection = connection
            threading.Thread(target=self._listen, args=(connection,), name=f"agentgym-from-{self.name}", daemon=True).start()
        return connection

    def _listen(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError, TypeError):  # a closed connection has no handle to read from
            while True:
                ticket, answer = pickle.loads(connection.recv_bytes())
                self.spoke = True
                with self._lock:
                    future = self._open.pop(ticket, None)
                if future is not None:
                    settle(future, answer)
        until = time.monotonic() + (_OWNER if self._owned else 0)
        while connection is self._connection:  # until somebody has dropped it, and said why
            if time.monotonic() >= until:
                self.drop(f"{self.name} is gone")
            time.sleep(0.01)
