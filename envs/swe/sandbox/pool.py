"""Sandboxes that are ready before they are asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from agentgym.errors import AgentGymError, EnvError

from .types import Backend, Limits, Sandbox


class Pool:
    """Keeps `n` sandboxes of one tree (or image) warm and gives each to one user. Safe to use from several threads.

    A sandbox is used once: what comes back is closed, and a new one takes its place in the background.
    """

    def __init__(
        self,
        backend: Backend,
        n: int,
        tree: Path | None,
        *,
        image: str | None = None,
        limits: Limits = Limits(),
        env: Mapping[str, str] = {},
    ) -> None:
        """Start to open `n` sandboxes in the background. Raises EnvError for n below 1."""
        if n < 1:
            raise EnvError(f"a pool of {n} sandboxes; give at least 1")
        self._n = n
        self._new = lambda: backend.open(tree, image=image, limits=limits, env=env)
        self._ready: list[Sandbox] = []
        self._out: set[int] = set()
        self._changed = threading.Condition()
        self._failed: AgentGymError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="sandbox pool", daemon=True)
        self._thread.start()

    def open(self, timeout: float = 300.0) -> Sandbox:
        """Return a sandbox in its clean state, at once where one is warm. Raises EnvError where none can be made."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._ready:
                if self._closed:
                    raise EnvError("this pool is closed")
                if self._failed:
                    failed, self._failed = self._failed, None
                    self._changed.notify_all()
                    raise failed
                if not self._changed.wait(deadline - time.monotonic()):
                    raise EnvError(f"no sandbox is ready within {timeout:g} s")
            sandbox = self._ready.pop(0)
            self._out.add(id(sandbox))
            self._changed.notify_all()
        return sandbox

    def close(self, sandbox: Sandbox | None = None) -> None:
        """Close one sandbox that `open` gave; without one, close the pool and all that is warm."""
        if sandbox is not None:
            sandbox.close()
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(120)
        for warm in self._ready:
            warm.close()
        self._ready = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _refill(self) -> None:
        """Open sandboxes while fewer than `n` are warm; after a failure wait until somebody has been told."""
        while True:
            with self._changed:
                while not self._closed and (self._failed or len(self._ready) >= self._n):
                    self._changed.wait()
                if self._closed:
                    return
            try:
                sandbox = self._new()
            except AgentGymError as e:
                with self._changed:
                    self._failed = e
                    self._changed.notify_all()
                continue
            with self._changed:
                self._ready.append(sandbox)
                self._changed.notify_all()
