"""Sandboxes in which an agent's commands run: Docker, bubblewrap, or none where the user says so.

with backend().open(folder) as sandbox:
    sandbox.shell("cd src && ls").output
    sandbox.run("python -m pytest -q", timeout=300)
    sandbox.reset()
"""

from __future__ import annotations

from typing import Literal

from agentgym.errors import ConfigError, did_you_mean

from .bubblewrap import Bubblewrap
from .docker import Docker
from .none import Unsandboxed
from .owner import reap
from .pool import Pool
from .types import TREE, Backend, Limits, Result, Sandbox, SandboxMissing

__all__ = ["TREE", "Backend", "Limits", "Pool", "Result", "Sandbox", "SandboxMissing", "backend", "reap"]

_NAMES = ("auto", "docker", "bubblewrap", "none")


def backend(name: Literal["auto", "docker", "bubblewrap", "none"] = "auto", *, packages: tuple[str, ...] = ("pytest",)) -> Backend:
    """Return a backend that can run here; auto is docker where an engine answers, else bubblewrap.

    packages  what the sandbox's Python has besides its standard library, from this process's environment (not for a user's own image)
    Raises SandboxMissing with the commands that install one, ConfigError for another name.
    `none` warns: nothing keeps the agent's code from this machine.
    """
    if name == "none":
        return Unsandboxed()
    if name not in _NAMES:
        raise ConfigError(f"no sandbox backend {name!r}; there are {', '.join(_NAMES)}.{did_you_mean(name, _NAMES)}")
    lacking = []
    for candidate in (Docker(packages), Bubblewrap(packages)):
        if name in ("auto", candidate.name):
            missing = candidate.available()
            if missing is None:
                return candidate
            lacking.append(f"{candidate.name}: {missing}")
    raise SandboxMissing("no sandbox for the agent's commands.\n" + "\n".join(lacking))
