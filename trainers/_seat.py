"""A generator process as the trainer sees it: what it was sent, what it sends, and how it ends."""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agentgym import registry
from agentgym.types import Task, Trajectory

from ._generator import Published, generate

_CLOSING = 15.0  # seconds in which a generator may close its environments
_COPYING = 60.0  # seconds after which a generator that is still copying weights is ended


@dataclass
class Job:
    """A group to be played; `version`: the weights when it was admitted; `deaths` counts the generators that died over it."""

    serial: int
    key: str
    task: Task
    seed: int
    version: int = -1
    deaths: int = 0

    def row(self) -> dict[str, Any]:
        """Return the job as plain values, for a checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, row: dict[str, Any]) -> Job:
        """Return the job of a row."""
        return cls(**row | {"task": Task(**row["task"])})


@dataclass
class Done:
    """A group that was played; `order`: when it came. `oldest`: version of its oldest token, None when every episode broke."""

    job: Job
    group: list[Trajectory]
    order: int

    def __post_init__(self) -> None:
        self.oldest = min((v for t in self.group if not t.failed for v in _versions(t)), default=None)


def _versions(trajectory: Trajectory) -> list[int]:
    """Return the versions of an episode's tokens."""
    found: list[int] = []
    for step in trajectory.steps:
        v = step.completion.version
        found += v if isinstance(v, list) else [v]
    return found


class Seat:
    """One generator.

    deliver  gets (seat, message), and (seat, None) when the process has ended; called in a thread of the seat's own
    deaths   of the generators that had this place before, since the last group that one of them finished
    """

    def __init__(self, context: Any, index: int, deaths: int, published: Published, args: tuple[Any, ...], deliver: Callable[..., None]) -> None:
        self.index, self.deaths, self.jobs = index, deaths, dict[int, Job]()
        self.heard, self.silent, self._speaks, self._reason = True, 0.0, False, ""
        self._lock = context.Lock()
        self._pipe, theirs = context.Pipe()
        local = registry.local_name("env", args[0].env.name)
        self.process = context.Process(
            target=generate, args=(theirs, published, self._lock, *args, local), name=f"agentgym-generator-{index}", daemon=True
        )
        self.process.start()
        theirs.close()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=f, args=a, name=self.process.name, daemon=True) for f, a in ((self._listen, (deliver,)), (self._talk, ()))
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, deliver: Callable[..., None]) -> None:
        # Bytes only: unpickling here would take the interpreter from the trainer's thread at any moment.
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._pipe.recv_bytes()
                self._speaks = True
                deliver(self, message)
        deliver(self, None)

    def _talk(self) -> None:
        # A generator that hangs reads nothing, and a pipe is soon full: the trainer must not hang with it.
        with contextlib.suppress(OSError):  # a dead one is the listener's affair
            while (message := self._outbox.get()) is not None:
                self._pipe.send_bytes(message)

    def send(self, kind: str, payload: Any) -> None:
        """Send a message, without waiting for it to be read."""
        self._outbox.put(pickle.dumps((kind, payload), protocol=5))

    def hold(self, held: contextlib.ExitStack) -> None:
        """Keep the generator from copying weights until `held` is left; one that dies meanwhile, or hangs, is passed over."""
        until = time.monotonic() + _COPYING
        while not self._lock.acquire(timeout=0.2):
            if not self.process.is_alive():
                return
            if time.monotonic() > until:
                self.kill(f"copied weights for {_COPYING:g} s")
        held.callback(self._lock.release)

    def kill(self, reason: str) -> None:
        """End the process at once; the listener will say so."""
        self._reason = reason
        self.process.kill()

    def close(self) -> None:
        """Wait for a process that was told to end, then make sure of it; one that is still starting has nothing to close."""
        self.process.join(_CLOSING if self._speaks else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5)
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(5)
        self._pipe.close()

    def epitaph(self) -> str:
        """Return what became of the process, for a message."""
        code = self.process.exitcode
        hint = "; -9 is often the system being out of memory" if code == -9 and not self._reason else ""
        return f"the generator process {self.process.name} {f'{self._reason} and was ended' if self._reason else f'died (exit code {code}{hint})'}"
