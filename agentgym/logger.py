"""Where numbers go while a run is under way: the contract of a logger, and a fan-out to several of them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from .errors import AgentGymError


class Logger(Protocol):
    """Takes what a run has to say. A plug-in is `name(run_dir: Path, *, options)`.

    A logger that keeps rows may also have `rewind(step, evaluated)`: a killed run resumes after `step`, and later rows will be logged again;
    so will evaluations at `step` that are not among `evaluated`.
    """

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Take one row of numbers. `step` never falls within a run, over all its stages; `stage` says which part of the run it is."""
        ...

    def text(self, message: str) -> None:
        """Take a message for people."""
        ...

    def progress(self, name: str, done: int, total: int) -> None:
        """Take how far the work called `name` is."""
        ...

    def close(self) -> None:
        """Write out what is pending. Calling it twice is allowed."""
        ...


class Quiet:
    """Base of loggers: does nothing with whatever a logger has no place for."""

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None: ...

    def text(self, message: str) -> None: ...

    def progress(self, name: str, done: int, total: int) -> None: ...

    def close(self) -> None: ...


class Loggers:
    """Hands everything to several loggers. One that raises is reported once and dropped: a full disk at a tracker ends no training."""

    def __init__(self, loggers: Mapping[str, Logger]) -> None:
        self._loggers = dict(loggers)

    @property
    def names(self) -> list[str]:
        """Return the loggers that are still there."""
        return list(self._loggers)

    def log(self, step: int, metrics: Mapping[str, float], *, stage: str) -> None:
        """Log one row of numbers everywhere."""
        self._each("log", step, metrics, stage=stage)

    def text(self, message: str) -> None:
        """Log a message everywhere."""
        self._each("text", message)

    def progress(self, name: str, done: int, total: int) -> None:
        """Show everywhere how far the work called `name` is."""
        self._each("progress", name, done, total)

    def rewind(self, step: int, evaluated: Collection[str] | None = None) -> None:
        """Drop what was logged after `step`, where a logger can."""
        self._each("rewind", step, evaluated, optional=True)

    def close(self) -> None:
        """Close every logger, whatever the others do."""
        self._each("close")

    def _each(self, method: str, *args: Any, optional: bool = False, **kwargs: Any) -> None:
        dropped: list[str] = []
        for name, logger in list(self._loggers.items()):
            call = getattr(logger, method, None) if optional else getattr(logger, method)
            if call is None:
                continue
            try:
                call(*args, **kwargs)
            except Exception as e:
                del self._loggers[name]
                what = str(e) if isinstance(e, AgentGymError) else f"{type(e).__name__}: {e}"
                dropped.append(f"the logger {name!r} failed in {method}() and is dropped, the run goes on ({what})")
        for message in dropped:
            self._report(message)

    def _report(self, message: str) -> None:
        """Tell the loggers that are left; a console among them knows how to print beside its bars."""
        if self._loggers:
            self.text(message)
        else:
            print(message, file=sys.stderr, flush=True)
