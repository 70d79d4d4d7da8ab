"""What all sandboxes share: one-shot commands and the long-lived shell, over what each backend does: start a bash, end all that runs."""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from agentgym.errors import EnvError

from . import owner
from .shell import Ended, Shell
from .types import TREE, Limits, Result

T = TypeVar("T")
_PATIENCE_S = 60.0
_ASIDE = 200  # characters kept of what a command of ours prints
NEW_SHELL = "the next shell command starts in a new shell"


class Base(abc.ABC):
    """A sandbox whose backend gives `_bash`, `_end_processes`, `_read`, `_write`, `_snapshot`, `_reset` and `_close`."""

    tree = TREE

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.RLock()
        self._shell: Shell | None = None
        self._ours: Shell | None = None
        self._news = ""  # what the next shell command has to be told
        self._closed = self._aborted = False
        owner.register(self)

    @abc.abstractmethod
    def _bash(self, env: Mapping[str, str]) -> Shell:
        """Start a bash in the work tree. Raises BlockingIOError where no more processes are allowed."""

    @abc.abstractmethod
    def _end_processes(self) -> None:
        """End all that runs. Raises EnvError where the sandbox itself has ended."""

    @abc.abstractmethod
    def _read(self, path: str, limit: int) -> bytes: ...

    @abc.abstractmethod
    def _write(self, path: str, data: bytes) -> None: ...

    @abc.abstractmethod
    def _snapshot(self) -> None: ...

    @abc.abstractmethod
    def _reset(self) -> None: ...

    @abc.abstractmethod
    def _close(self) -> None: ...

    @abc.abstractmethod
    def _abort(self) -> None:
        """Begin to end all that runs, without waiting for it or for another thread."""

    def run(self, command: str, *, timeout: float = 60.0, env: Mapping[str, str] = {}, output: int | None = None) -> Result:
        with self._lock:
            self._check(timeout)
            start = time.monotonic()
            if "\0" in command:
                return _no_nul(command)
            shell, ended = self._executed(command, env, timeout, self.limits.output if output is None else output)
            try:
                return self._result(ended, start, timeout, "")
            finally:
                shell.close()

    def shell(self, command: str, *, timeout: float = 60.0) -> Result:
        with self._lock:
            self._check(timeout)
            start = time.monotonic()
            if "\0" in command:
                return _no_nul(command)
            news, self._news = self._news, ""
            if self._shell is None:
                self._shell, ended = self._executed(command, {}, timeout, self.limits.output)
            else:
                ended = self._shell.execute(command, timeout, self.limits.output)
            shell = self._shell
            result = self._result(ended, start, timeout, NEW_SHELL)
            if ended.how != "done":
                shell.close()
                self._shell, self._news = None, ""
            return result._replace(output=news + result.output)

    def aside(self, command: str, *, timeout: float = 60.0) -> str:
        with self._lock:
            self._check(timeout)
            if self._ours is None:
                self._ours, _ = self._executed(":", {}, timeout, _ASIDE)
            ended = self._ours.execute(command, timeout, _ASIDE)
            if ended.how != "done":
                self._drop_ours()
            return ended.text

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        with self._lock:
            self._check()
            return self._read(path, limit)

    def write(self, path: str, data: bytes) -> None:
        with self._lock:
            self._check()
            self._write(path, data)

    def snapshot(self) -> None:
        self._afresh(self._snapshot)

    def reset(self) -> None:
        self._afresh(self._reset)

    def abort(self) -> None:
        """Begin to end all that runs, without waiting for it; a command of another thread raises EnvError. `close` is still needed."""
        self._aborted = True
        self._abort()

    def close(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.abort()
            self._lock.acquire(timeout=_PATIENCE_S)  # not got: that thread hangs in the engine, and we go on all the same
        if not self._closed:
            self._closed = True
            owner.forget(self)
            self._drop_shell("")
            self._drop_ours()
            self._close()
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _executed(self, command: str, env: Mapping[str, str], timeout: float, characters: int) -> tuple[Shell, Ended]:
        """Run a command in a new bash. Where there is no room for one, end what runs first: the agent's processes fill the sandbox."""
        for attempt in range(2):
            said = "no more processes are allowed"
            try:
                shell = self._bash(env)
            except BlockingIOError:
                pass
            else:
                ended = shell.execute(command, timeout, characters)
                if ended.how != "unborn":
                    if attempt:
                        ended.text = f"[the sandbox was full of processes: all were ended]\n{ended.text}"
                    return shell, ended
                said = ended.text or f"exit status {ended.code}"
                shell.close()
            self._end_processes()
            self._drop_shell("the sandbox was full of processes: all were ended")
        raise EnvError(f"the sandbox cannot start a shell: {said}")

    def _result(self, ended: Ended, start: float, timeout: float, then: str) -> Result:
        """Turn the end of a command into a result; where it timed out, end all that runs."""
        if self._aborted:
            raise EnvError("the sandbox was closed while a command ran in it")
        text, code, late = ended.text, ended.code, ended.how == "late"
        then = f"; {then}" if then else ""
        if late:
            self._end_processes()
            text = _line(text, f"[no end after {timeout:g} s: all that ran was ended{then}]")
            self._drop_shell("all that ran was ended because a command took too long")
        elif ended.how == "lost":
            self._end_processes()  # raises where it was the sandbox that ended
            code = 137
            text = _line(text, f"[the shell was killed{then}]") if then else text
        elif ended.how == "gone" and then:
            text = _line(text, f"[the shell ended with status {code}{then}]")
        return Result(code, text, ended.dropped, late, time.monotonic() - start)

    def _afresh(self, act: Callable[[], None]) -> None:
        """Do what ends all that runs; the next shell command needs no explanation."""
        with self._lock:
            self._check()
            self._drop_shell("")
            act()
            self._news = ""

    def _drop_shell(self, why: str) -> None:
        if self._shell is not None:
            self._shell.close()
            self._shell = None
            self._news = f"[a new shell: {why}]\n" if why else ""

    def _drop_ours(self) -> None:
        if self._ours is not None:
            self._ours.close()
            self._ours = None

    def _check(self, timeout: float = 1.0) -> None:
        if self._closed:
            raise EnvError("this sandbox is closed; open another one")
        if not timeout > 0:
            raise EnvError(f"a command's time-out is {timeout!r}; give seconds above 0")


def _line(text: str, line: str) -> str:
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}"


def _no_nul(command: str) -> Result:
    return Result(2, f"bash: a command cannot hold a NUL byte (character {command.index(chr(0)) + 1})\n", 0, False, 0.0)


def environment(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that every process of a sandbox gets, with the caller's own on top."""
    return {
        "HOME": "/tmp",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_CONFIG_NOSYSTEM": "1",
        **own,
    }
