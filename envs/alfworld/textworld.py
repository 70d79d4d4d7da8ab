"""The real ALFWorld engine behind the same few methods as ours, in a process of its own.

It needs the extra `alfworld` (textworld, fast-downward-textworld, alfworld). It keeps its state in module globals and a
shared library, captures stdout, and may hang: so every instance starts one worker, asks it over a pipe, waits no longer
than `timeout`, and kills it on close. What runs there is in `textworld_worker.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import weakref
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import NamedTuple

from agentgym.errors import EnvError

from .engine import Dialect

_PACKAGES = {"textworld": "textworld", "fast_downward": "fast-downward-textworld", "alfworld": "alfworld"}


class Answer(NamedTuple):
    """What the worker says after a reset or a step."""

    observation: str
    admissible: list[str]
    won: bool


def missing_packages() -> list[str]:
    """Return the packages of the extra `alfworld` that are not installed."""
    return [package for module, package in _PACKAGES.items() if find_spec(module) is None]


class TextWorldEngine:
    """Plays games with the real engine: `load` a game, then `step`, `reset`, `admissible` and `won` as with Engine.

    caches   memoise what does not change within a game (parsed grammar, texts of commands, the translated problem):
             same output, some thirty times faster. Without them this is the engine as published.
    timeout  seconds that one call may take; then the worker is killed and EnvError raised
    """

    def __init__(self, *, dialect: Dialect = "move", caches: bool = True, timeout: float = 120.0) -> None:
        if missing := missing_packages():
            raise EnvError(
                f"engine='textworld' needs {', '.join(missing)}: pip install 'agentgym[alfworld]' (it compiles a "
                "planner, which takes minutes). engine='fast' needs nothing and plays the same"
            )
        self.dialect = dialect
        self.caches = caches
        self.timeout = timeout
        self._pipe: Connection | None = None
        self._stop: weakref.finalize[..., TextWorldEngine] | None = None
        self._source = "no game"
        self._last = Answer("", [], False)

    def load(self, text: str, *, source: str = "<text>") -> str:
        """Load the text of a `game.tw-pddl` file and return the intro."""
        self._source = source
        return self._ask("load", text)

    def reset(self) -> str:
        """Start the loaded game again and return the intro."""
        return self._ask("reset")

    def step(self, command: str) -> str:
        """Carry out `command` and return the observation."""
        return self._ask("step", command)

    @property
    def admissible(self) -> list[str]:
        """Every command that is accepted now, sorted, without repeats."""
        return self._last.admissible

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        return self._last.won

    def close(self) -> None:
        """Kill the worker. The next `load` starts a new one."""
        if self._stop is not None:
            self._stop()
        self._pipe = self._stop = None

    def _ask(self, what: str, argument: str = "") -> str:
        call = f"{what}({argument[:80]!r})" if what == "step" else f"{what}()"
        pipe = self._pipe if self._pipe is not None else self._start()
        try:
            pipe.send((what, argument))
            if not pipe.poll(self.timeout):
                raise TimeoutError(f"no answer within {self.timeout:g} s")
            done, answer = pipe.recv()
        except (EOFError, OSError) as e:  # TimeoutError is an OSError
            self.close()
            raise EnvError(
                f"the real ALFWorld engine failed at {call} of {self._source}: "
                f"{str(e) or 'its process ended'}. It was killed; raise `timeout` or reset"
            ) from None
        if not done:
            self.close()
            raise EnvError(f"the real ALFWorld engine failed at {call} of {self._source}: {answer}")
        self._last = Answer(*answer)
        return self._last.observation

    def _start(self) -> Connection:
        ours, theirs = multiprocessing.Pipe()
        # Not multiprocessing.Process: its spawn runs the user's script again, and its fork copies our threads.
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.textworld_worker", str(theirs.fileno()), self.dialect]
            + (["--caches"] if self.caches else []),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self._pipe = ours
        self._stop = weakref.finalize(self, _kill, worker, ours)
        return ours


def _kill(worker: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    worker.kill()
    worker.wait()
