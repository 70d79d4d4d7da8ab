"""The README is true: its files and commands are run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
ROOT = Path(__file__).parents[1]
SMALL = [
    "model.layers=1", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.head_dim=16", "model.ffn=64", "model.vocab=360",
    "rollout.tasks=2", "rollout.group_size=4", "rollout.max_tokens=4", "update.count=2", "update.warmup=0", "update.minibatches=1",
    "eval.every=0", "run.workers=1", "stages.warm.rollout.tasks=4", "stages.warm.update.count=2", "stages.warm.update.minibatches=1",
    "stages.warm.update.warmup=0", "stages.warm.update.decay=constant",
]  # fmt: skip


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that the README shows."""
    out = tmp_path_factory.mktemp("readme")
    for block in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name, f"a Python block of the README names no file:\n{block}"
        (out / name[1]).write_text(block, "utf-8")
    return out


def agentgym(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "AGENTGYM_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "agentgym.cli", *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)


def command_with(word: str) -> list[str]:
    """Return the arguments of the README's command that contains `word`."""
    (line,) = [x for b in blocks("sh") for x in b.splitlines() if word in x]
    return line.split("#")[0].replace("tasks/", f"{ROOT}/tasks/").split()[1:]


def test_the_two_commands_come_first() -> None:
    assert [line.split("#")[0].strip() for line in blocks("sh")[0].splitlines()] == ["make run", "make test"]
    targets = (ROOT / "Makefile").read_text("utf-8")
    assert "\nrun:" in targets and "\ntest:" in targets


def test_your_method_trains(folder: Path) -> None:
    done = agentgym(folder, *command_with("best_of.py:best_of"), *SMALL, "env.max_steps=4", "run.dir=method", "eval.show=1", "env.n=40")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (folder / "method" / "summary.json").exists()


def test_your_environment_passes_its_check_and_trains(folder: Path) -> None:
    checked = agentgym(folder, *command_with("check ./calculator.py"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    played = agentgym(folder, *command_with("play ./calculator.py"))
    assert played.returncode == 0 and "What is (" in played.stdout, played.stdout + played.stderr
    trained = agentgym(folder, *command_with("env=./calculator.py"), *SMALL, "run.dir=calculator")
    assert trained.returncode == 0, trained.stderr + trained.stdout
    assert (folder / "calculator" / "summary.json").exists()


def test_environment_is_as_short_as_it_says() -> None:
    (block,) = [b for b in blocks("python") if "class Calculator" in b]
    lines = [x for x in block.splitlines() if x.strip() and not x.strip().startswith(("#", '"""', "from "))]
    assert len(lines) <= 25


def test_every_file_that_the_readme_names_exists() -> None:
    for path in re.findall(r"(?:tasks|trainers/recipes)/\w+\.yaml", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path


def test_every_command_of_the_readme_is_a_command() -> None:
    from agentgym.cli import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback} | {g.name for g in app.registered_groups}
    used = set(re.findall(r"agentgym (\w+) ", "\n".join(blocks("sh"))))
    assert used <= known
