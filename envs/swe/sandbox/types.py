"""What every sandbox promises: its limits, its results, and the two protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from agentgym.errors import ConfigError, EnvError

TREE = "/testbed"  # where the work tree lies in a sandbox
USER = 1000  # the number of the agent's user and of its group


class SandboxMissing(EnvError):
    """No backend can run here; the message has the commands that install one."""


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use.

    memory_mb  of all its processes and of the files that they add together; the tree that came with it is free
    pids       processes and threads at the same time
    cpus       cores, on average
    disk_mb    what it may add to the work tree; /tmp has half of it, /dev/shm as much as /tmp but at most 64
    output     characters of a command's output that are kept: one half from the start, one from the end
    """

    memory_mb: int = 2048
    pids: int = 256
    cpus: float = 1.0
    disk_mb: int = 1024
    output: int = 20_000

    def __post_init__(self) -> None:
        """Refuse limits under which nothing would run. Raises ConfigError."""
        least = {"memory_mb": 64, "pids": 16, "cpus": 0.05, "disk_mb": 1, "output": 200}
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if isinstance(low, int) else (int, float)) or not low <= value < 1e9:
                raise ConfigError(f"sandbox limit {name}={value!r}: give a number of at least {low}")
        if self.memory_mb < self.files_mb + 96:
            raise ConfigError(
                f"sandbox limits: files are kept in memory, so disk_mb={self.disk_mb} needs a memory_mb of at least {self.files_mb + 96}, "
                f"not {self.memory_mb}"
            )

    @property
    def tmp_mb(self) -> int:
        """Megabytes of /tmp."""
        return max(1, self.disk_mb // 2)

    @property
    def shm_mb(self) -> int:
        """Megabytes of /dev/shm."""
        return min(64, self.tmp_mb)

    @property
    def files_mb(self) -> int:
        """Megabytes of all files that the agent can add."""
        return self.disk_mb + self.tmp_mb + self.shm_mb


class Result(NamedTuple):
    """What a command did.

    code       its exit status, 128 + signal where one ended it; None where it timed out
    output     stdout and stderr as they came, UTF-8 (what is none becomes U+FFFD), with a line in the middle that says how much was left out
    dropped    bytes that were left out
    seconds    wall clock
    """

    code: int | None
    output: str
    dropped: int
    timed_out: bool
    seconds: float


@runtime_checkable
class Sandbox(Protocol):
    """One work tree at /testbed, a user without rights, no network. Safe to use from several threads, one call at a time.

    tree  where the work tree is: /testbed, except without isolation
    """

    tree: str

    def run(self, command: str, *, timeout: float = 60.0, env: Mapping[str, str] = {}, output: int | None = None) -> Result:
        """Run a command in a bash of its own that starts in the work tree; its stdin is empty. A time-out ends all that runs in the sandbox.

        env     variables on top of the sandbox's own
        output  characters to keep, instead of the limit
        Raises EnvError where the sandbox fails, never for what the command does.
        """
        ...

    def shell(self, command: str, *, timeout: float = 60.0) -> Result:
        """Run a command in the long-lived bash: working folder, variables, functions and background jobs stay for the next one.

        Where that bash has ended (`exit`, a time-out) the next command gets a new one, and its output says so.
        """
        ...

    def aside(self, command: str, *, timeout: float = 60.0) -> str:
        """Run a command of ours in a bash of its own that stays, apart from the agent's; return what it printed, 200 characters at most.

        The agent's processes can disturb it: then what it says is cut off, and the next call gets a new bash.
        """
        ...

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """Return the first `limit` bytes of a file, as the sandbox's user sees it. Raises OSError as open() does."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a file as the sandbox's user, and the folders above it. Raises OSError as open() does, ENOSPC at the disk limit."""
        ...

    def snapshot(self) -> None:
        """Make the work tree as it is now the clean one. Ends all that runs."""
        ...

    def reset(self) -> None:
        """Bring back the clean work tree and an empty /tmp. Ends all that runs."""
        ...

    def close(self) -> None:
        """End all that runs and remove all there is of it. Twice is as good as once."""
        ...


class Backend(Protocol):
    """A way to make sandboxes."""

    name: str

    def available(self) -> str | None:
        """Return None where it can run here, else what is missing and the command that installs it."""
        ...

    def describe(self) -> dict[str, str]:
        """Return how each limit is enforced here, by name."""
        ...

    def open(self, tree: Path | None, *, image: str | None = None, limits: Limits = Limits(), env: Mapping[str, str] = {}) -> Sandbox:
        """Return a new sandbox.

        tree   a folder whose content becomes the work tree; it is never changed
        image  instead of a tree: a Docker image that has one at /testbed
        env    variables for all that runs in it
        Raises EnvError, ConfigError.
        """
        ...
