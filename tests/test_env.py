"""TextEnv, make and register: environments by name, and what Gymnasium asks of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentgym
from agentgym import registry
from agentgym.env import TextEnv, UnicodeText, make
from agentgym.errors import EnvError, RegistryError, TaskError


class counting(TextEnv):
    """Count to the number that the task names."""

    def __init__(self, *, split: str = "train") -> None:
        super().__init__()

    def tasks(self) -> list[str]:
        return ["2", "3"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.task, self.n = self.pick_task(seed, options, self.tasks()), 0
        return "0", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.n += 1
        done = self.n == int(self.task)
        return str(self.n), float(done), done, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"task_id": self.task, "state": str(self.n), "success": self.n == int(self.task), "valid": True}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_local", {})
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))


def test_the_seed_or_the_task_decides() -> None:
    env = counting()
    assert env.reset(options={"task": "3"})[1]["task_id"] == "3"
    picked = [env.reset(seed=s)[1]["task_id"] for s in range(20)]
    assert set(picked) == {"2", "3"} and picked == [env.reset(seed=s)[1]["task_id"] for s in range(20)]
    with pytest.raises(TaskError, match=r"no task '33' in this split \(2 tasks\)\. Did you mean '3'"):
        env.reset(options={"task": "33"})
    with pytest.raises(EnvError, match=r"reset\(options=…\) has no key 'tsk'; allowed: 'task'"):
        env.reset(options={"tsk": "3"})


def test_what_is_not_defined_says_so() -> None:
    class bare(TextEnv): ...

    with pytest.raises(EnvError, match=r"bare does not list its tasks: define tasks\(\)"):
        bare().tasks()
    with pytest.raises(EnvError, match=r"bare has no expert: define expert\(\)"):
        bare().expert()
    with pytest.raises(TaskError, match="bare has no tasks in this split"):
        bare().pick_task(0, None, [])


def test_make_by_every_kind_of_name() -> None:
    for name in ("toy", "agentgym/Toy-v0", "agentgym.envs.toy:toy"):
        env = make(name, size=3)
        assert type(env).__name__ == "toy" and env.size == 3  # type: ignore[attr-defined]
    assert gymnasium.make("agentgym/Toy-v0", size=3).reset(seed=1)[0] == make("toy", size=3).reset(seed=1)[0]
    with pytest.raises(EnvError, match=r"environment 'toy' has no option 'sise'\. Did you mean 'size'.*Options: size, max_steps"):
        make("toy", sise=3)
    with pytest.raises(RegistryError, match=r"no env named 'toi'\. Did you mean 'toy'"):
        make("toi")
    with pytest.raises(EnvError, match=r"gave a Fraction, not a gymnasium\.Env"):
        make("fractions:Fraction")
    with pytest.raises(EnvError, match=r"3\.14.* is no class or function"):
        make("math:pi")


def test_register_makes_it_known_everywhere() -> None:
    agentgym.register("counting", counting)
    assert make("counting").reset(seed=0)[0] == "0" and "counting" in registry.names("env")
    assert gymnasium.make("agentgym/counting-v0").reset(options={"task": "2"})[1]["task_id"] == "2"
    assert agentgym.check_env("counting") is not None
    with pytest.raises(RegistryError, match="letters, digits"):
        agentgym.register("a b", counting)


def test_vector_environments_carry_any_text() -> None:
    class odd(counting):
        def reset(self, **kwargs: Any) -> Any:
            return "ümläut 🗝 \u2028", super().reset(**kwargs)[1]

    agentgym.register("odd", odd)
    venv = gymnasium.make_vec("agentgym/odd-v0", num_envs=2, vectorization_mode="sync")
    assert list(venv.reset(seed=0)[0]) == ["ümläut 🗝 \u2028"] * 2
    venv.close()


def test_asynchronous_vector_environments_never_hand_out_stale_text() -> None:
    # With Gymnasium's shared memory a text would be read once, at the start, and then never again.
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("agentgym/ALFWorld-v0", num_envs=2, vectorization_mode="async")


@given(st.text(max_size=20), st.integers(0, 2**31))
def test_the_space_of_texts(text: str, seed: int) -> None:
    space = UnicodeText(10, seed=seed)
    assert (text in space) == (len(text) <= 10) and 3 not in space
    assert space.sample() in space and space == UnicodeText(10) != UnicodeText(11)


def test_environments_of_other_packages_have_gymnasium_ids_too(tmp_path: Path) -> None:
    """A package that names its environments by entry point; another whose entry point leads nowhere must not break the import."""
    (tmp_path / "labenvs").mkdir()
    (tmp_path / "labenvs" / "__init__.py").touch()
    (tmp_path / "labenvs" / "corridor.py").write_text("from agentgym.envs.toy import toy\n\n\nclass corridor(toy):\n    ...\n")
    for name, home in (("lab", "labenvs"), ("gone", "no_such_package.envs")):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[agentgym.env]\n{name} = {home}\n")
    code = "import agentgym as a, gymnasium as g; print(*(m('agentgym/corridor-v0', size=4).unwrapped.size for m in (g.make, a.make)))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["4", "4"], done.stderr
