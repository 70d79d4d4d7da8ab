"""The examples are the tests: every recipe takes a real update, every task set is a valid configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import agentgym
from agentgym import registry
from agentgym.config import Config, build, load, merge, normalise, stages
from agentgym.store import read_lines

ROOT = Path(agentgym.__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "trainers" / "recipes").glob("*.yaml"))
TASKS = sorted((ROOT / "tasks").glob("*.yaml"))
# A recipe's own sizes are for real runs; here they shrink, wherever it sets them.
SMALL = {"rollout": {"tasks": 2, "group_size": 3, "max_tokens": 4, "max_draws": 2}, "update": {"count": 1, "warmup": 0, "minibatches": 1}}


def bind_all(config: Config) -> None:
    """Bind every plug-in that a configuration names: names and options are right."""
    for c in stages(config).values():
        single = ("context", "action", "policy", "sampler", "explore")
        for kind, section in ((k, getattr(c, k)) for k in single):
            if section is not None:
                registry.bind(kind, section.name, section.options)
        if c.critic is not None:
            registry.bind("critic", c.critic.name, c.critic.options)
        for kind, group in (("teacher", c.teachers), ("reward", c.rewards), ("logger", c.loggers)):
            for section in group.values():
                registry.bind(kind, section.name, section.options)
        registry.find("env", c.env.name)
        check_columns(c)


def check_columns(c: Config) -> None:
    """Every column that a part reads is provided, and every teacher's and critic's streams are read."""
    from torch import nn

    from agentgym.trainers import streams
    from agentgym.trainers.update import Updater

    fillers = {n: registry.find("teacher", p.name) for n, p in c.teachers.items()}
    if c.critic is not None:
        fillers["critic"] = registry.find("critic", c.critic.name)
    credit = registry.bind("credit", c.credit.name, c.credit.options) if c.credit else None
    updater = Updater.from_config(c, nn.Linear(2, 2))
    updater.check(credit, fillers.values())
    streams.check_read(updater.needs(credit, fillers.values()), fillers)


def pivots_of_the_expert(layer: dict[str, Any], path: Path) -> str:
    """Write the decisions of the environment's expert as a data set, all of them: nobody was profiled."""
    import asyncio

    from agentgym.store import dump_line
    from agentgym.trainers import decisions, setup

    async def find(config: Config) -> list[dict[str, Any]]:
        train = setup.tasks_of(config, config.splits.train)
        return (await decisions.decisions(await decisions.trajectories_of(["expert"], config, train, 4), config))[0]

    path.write_bytes(b"".join(dump_line(row, str(path)) for row in asyncio.run(find(build(normalise(layer, "toy"))))))
    return str(path)


def test_there_are_some() -> None:
    assert {"gigpo", "grpo", "rloo"} <= {r.stem for r in RECIPES} and "alfworld" in {t.stem for t in TASKS}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.stem)
def test_a_recipe_takes_a_real_update(recipe: Path, toy_layer: dict[str, Any], tmp_path: Path) -> None:
    from agentgym.trainers.train import train

    raw = yaml.safe_load(recipe.read_text("utf-8"))
    base = {k: v for k, v in toy_layer.items() if k not in ("stages", "optimizer")}
    small = {**SMALL, "run": {"dir": str(tmp_path / "run")}, "eval": {"every": 0}}
    if raw.get("critic"):  # its first rounds would leave the policy alone, and there is only one
        small["critic"] = {"warmup": 0}
    if raw.get("policy") == "expert":  # for a stage only: at the top stands who is evaluated
        base, raw = {k: v for k, v in base.items() if k not in ("credit", "objectives")}, {"stages": {"warm": {"recipe": recipe.stem}}}
    if raw.get("sampler") == "pivots":
        small["sampler"] = {"file": pivots_of_the_expert(base, tmp_path / "pivots.jsonl")}
    small["stages"] = {n: SMALL for n, s in (raw.get("stages") or {}).items() if s is not None}
    merged: dict[str, Any] = {}
    for layer in (base, raw, small):
        merged = merge(merged, normalise(layer, recipe.name))
    config = build(merged)
    summary = train(config)
    assert summary["updates"] == len(stages(config))
    rows = [r for r in read_lines(tmp_path / "run" / "metrics.jsonl") if "loss" in r]
    assert rows and all(r["updates"] == 1 and r["skipped"] == 0 for r in rows)
    assert "loss" in rows[-1] and json.loads((tmp_path / "run" / "summary.json").read_text())["updates"] >= 1


@pytest.mark.parametrize("task", TASKS, ids=lambda p: p.stem)
@pytest.mark.parametrize("recipe", [None, *(r.stem for r in RECIPES)])
def test_a_task_set_with_every_recipe(task: Path, recipe: str | None) -> None:
    config = load([task], [f"recipe={recipe}"] if recipe else [])
    bind_all(config)
    if recipe:
        assert any(c.objectives for c in stages(config).values())


def test_the_makefiles_and_the_readmes_words_are_files() -> None:
    """Every file that README names by a path is there."""
    import re

    text = (ROOT / "README.md").read_text("utf-8")
    for name in set(re.findall(r"\b(?:tasks|trainers/recipes)/[\w-]+\.yaml\b", text)):
        assert (ROOT / name).is_file(), name


def test_a_recipe_is_short() -> None:
    for recipe in RECIPES:
        lines = recipe.read_text("utf-8").splitlines()
        assert len(lines) <= 20, f"{recipe.name}: a recipe is 5 to 15 lines"
        assert lines[0].startswith("# "), f"{recipe.name}: says first what it is"


def test_the_fixture_is_real(toy: Callable[..., Config]) -> None:
    bind_all(toy())
