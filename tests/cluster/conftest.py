"""One Ray for all tests here (it takes seconds to start), and an environment that does what it is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym import registry
from agentgym.trainers.cluster._place import Backend

# Its actions: pid (say who you are), die, hang, wait SECONDS, raise; anything else plays the toy environment.
# As soon as the file `hour` exists, a step takes one.
OBEDIENT = """
import os, time
from agentgym.envs.toy import toy

class obedient(toy):
    def __init__(self, *, size: int = 3, max_steps: int = 6, split: str = "train", log: str = "", hour: str = "") -> None:
        super().__init__(size=size, max_steps=max_steps, split=split)
        self.log, self.hour = log, hour

    def step(self, action):
        if self.hour and os.path.exists(self.hour):
            time.sleep(3600)
        if action == "die":
            os._exit(3)
        if action == "raise":
            raise ValueError("as it was told")
        if action.startswith("wait"):
            time.sleep(float(action.split()[1]))
        if action == "hang":
            time.sleep(3600)
        seen, *rest = super().step(action)
        return (f"{os.getpid()}" if action == "pid" else seen), *rest

    def close(self):
        if self.log:
            with open(self.log, "a") as f:
                f.write(f"closed {os.getpid()}\\n")
"""


@pytest.fixture(scope="session")
def obedient(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of that environment."""
    file = tmp_path_factory.mktemp("env") / "obedient.py"
    file.write_text(OBEDIENT)
    return f"{file}:obedient"


@pytest.fixture(scope="session")
def local_ray() -> Iterator[Any]:
    """A Ray on this machine with four CPUs to give away."""
    ray = pytest.importorskip("ray", reason="the package ray is not installed (the extra ray)")
    os.environ["RAY_DEDUP_LOGS"] = "0"
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def backend(request: pytest.FixtureRequest) -> Iterator[Callable[..., Backend]]:
    """Return a maker of open backends, for each kind there is; they are closed at the end."""
    if request.param == "ray":
        request.getfixturevalue("local_ray")
    made: list[Backend] = []

    def make(**options: Any) -> Backend:
        made.append(registry.bind("cluster", request.param, options)())
        made[-1].open("test")
        return made[-1]

    make.name = request.param  # type: ignore[attr-defined]
    yield make
    for b in made:
        b.close()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(happens: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def alive() -> Callable[[int], bool]:
    return running


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    return until
