"""From an expert's episodes to the decisions in them: the way there, and what the expert did. The candidates of PivotRL (arXiv 2603.21383)."""

from __future__ import annotations

import asyncio
import dataclasses
import glob
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentgym import registry, store
from agentgym.action import Parsed
from agentgym.branch import Start
from agentgym.config import Config, Plugin
from agentgym.context import Turn
from agentgym.errors import ConfigError, DataError, EnvError
from agentgym.policy import Request, TextPolicy
from agentgym.rollout import Agent, Gym
from agentgym.types import Completion, Sampling, Task, Trajectory

from . import setup

Row = dict[str, Any]


def check_training(trajectories: Sequence[Trajectory], config: Config, train: Sequence[Task]) -> None:
    """Raise DataError when a trajectory is of a task that is not trained on."""
    split, known = config.splits.train, {t.id for t in train}
    other = [t.task for t in trajectories if t.task.split != split]
    if other:
        raise DataError(
            f"{len(other)} of {len(trajectories)} trajectories are of the split {other[0].split!r} (e.g. task {other[0].id!r}). What is held out is "
            f"never trained on: give trajectories of the split {split!r} (splits.train)"
        )
    strange = [t.task for t in trajectories if t.task.id not in known]
    if strange:
        raise DataError(
            f"{len(strange)} of {len(trajectories)} trajectories are of tasks that the split {split!r} does not have, e.g. {strange[0].id!r} of "
            f"{strange[0].env!r}: give the task set that they were played with (here: {config.env.name!r} with {config.env.options})"
        )


async def trajectories_of(sources: Sequence[str], config: Config, train: Sequence[Task], n: int | None) -> list[Trajectory]:
    """Return the trajectories of files (or quoted patterns), or those that a policy such as `expert` plays now, one per training task.

    n   only this many tasks are played (all when None). Raises ConfigError on a source that is neither.
    """
    out: list[Trajectory] = []
    for source in sources:
        files = [source] if Path(source).is_file() else sorted(glob.glob(source))
        if files:
            out += [t for f in files for t in store.read(Path(f))]
        elif source in registry.names("policy") and not registry.needs_model(source):
            out += await _play(source, config, train, n)
        else:
            raise ConfigError(
                f"--trajectories {source}: there is no such file, and no policy of that name that plays without a model. Give a file of stored "
                "trajectories (RUN/trajectories/warm-000001.jsonl.gz), or `expert`: then the environment's own expert plays now"
            )
    return out


async def _play(policy: str, config: Config, train: Sequence[Task], n: int | None) -> list[Trajectory]:
    section = config.policy if config.policy.name == policy else Plugin(policy)
    agent = dataclasses.replace(setup.make_agent(config, setup.make_policy(section, None, None), None), rewards=None)
    gym = make_gym(config)
    chosen = setup.Panel(list(train), gym, config.run.seed).some(n)
    try:
        seeds = [setup.seed_of("demonstration", config.run.seed, t.id) for t in chosen]
        return await asyncio.gather(*(gym.play(agent, t, group=t.id, seed=s) for t, s in zip(chosen, seeds, strict=True)))
    finally:
        gym.close()


def make_gym(config: Config) -> Gym:
    """Return a gym over the training split."""
    return Gym(setup.make_env(config, config.splits.train), concurrency=config.rollout.concurrency, timeout=config.rollout.step_timeout)


async def decisions(trajectories: Sequence[Trajectory], config: Config) -> tuple[list[Row], list[str]]:
    """Return (a row for every decision of the successful trajectories, reasons of those that do not replay).

    Each trajectory is played once more, action by action: this shows that it can be replayed, and what stored trajectories do not hold (the
    goal, the admissible actions). Decisions whose action was refused are no demonstrations, and of equal ones there is one row.
    Raises DataError when no trajectory succeeded, or when none replays.
    """
    good = [t for t in trajectories if t.success and t.steps and not t.failed]
    if not good:
        raise DataError(f"none of {len(trajectories)} trajectories succeeded: there is nothing to learn from in them")
    gym, notes = make_gym(config), _Notes(good)
    agent = Agent(notes, lambda *_, **__: [], _parser(good, config), Sampling())
    try:
        played = await asyncio.gather(*(gym.play(agent, t.task, group=str(i), seed=0) for i, t in enumerate(good)))
    finally:
        gym.close()
    rows: dict[str, Row] = {}
    reasons = []
    for t, again, seen in zip(good, played, notes.seen, strict=True):
        error = again.error or (f"it ended with {again.final_observation!r} now" if again.final_observation != t.final_observation else None)
        if error:
            reasons.append(f"task {t.task.id!r}: {error}")
        else:
            rows |= {row["key"]: row for row in _rows(t, seen)}
    if not rows:
        raise DataError(f"none of {len(good)} successful trajectories can be replayed; the first, {reasons[0] if reasons else 'has no valid step'}")
    return list(rows.values()), reasons


def _parser(trajectories: Sequence[Trajectory], config: Config) -> Callable[[str], Parsed]:
    """Return the action format. Raises DataError when the trajectories were written in another one: a model would read what it must not write."""
    action: Callable[[str], Parsed] = registry.bind("action", config.action.name, config.action.options)
    for t in trajectories:
        for step in t.steps:
            read = action(step.completion.text)
            if read.action != step.action or (step.valid and not read.valid):
                raise DataError(
                    f"task {t.task.id!r}: the action format {config.action.name!r} reads {tuple(read)} in the completion "
                    f"{step.completion.text[:200]!r}, recorded was {step.action!r}. They were written in another format: set action= to that one"
                )
    return action


class _Notes(TextPolicy):
    """Writes what was written then, and notes what the environment shows before each decision. The group key is the trajectory's index."""

    def __init__(self, recorded: Sequence[Trajectory]) -> None:
        self.recorded = recorded
        self.seen: list[list[tuple[Turn, dict[str, str]]]] = [[] for _ in recorded]

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        """Return the recorded completion. Raises EnvError when the environment shows something else than it did."""
        index = int(request.episode.partition("/")[0])
        seen, steps = self.seen[index], self.recorded[index].steps
        if len(seen) == len(steps):
            raise EnvError(f"it ended after {len(steps)} actions when it was recorded, and goes on now")
        step = steps[len(seen)]
        if request.observation != step.observation:
            raise EnvError(f"after {len(seen)} actions the environment shows {request.observation[:200]!r}, recorded was {step.observation[:200]!r}")
        info = request.info
        about = {n: str(info[n]) for n in ("goal", "task_type", "state") if n in info}
        seen.append((Turn(step.observation, info.get("admissible"), step.completion.text, step.action), about))
        return Completion(step.completion.text)


def _rows(t: Trajectory, seen: Sequence[tuple[Turn, dict[str, str]]]) -> list[Row]:
    """Return one row per decision of a trajectory that was played again."""
    history = [turn for turn, _ in seen]
    goal = seen[0][1].get("goal", history[0].observation)
    after = [*(s.observation for s in t.steps[1:]), t.final_observation]
    task = {"id": t.task.id, "env": t.task.env, "split": t.task.split, "seed": t.task.seed, "data": dict(t.task.data)}
    rows = []
    for i, (step, (turn, about)) in enumerate(zip(t.steps, seen, strict=True)):
        start = Start(tuple(history[:i]), Turn(turn.observation, turn.admissible), {**about, "goal": goal})
        expected = {"action": step.action, "completion": step.completion.text, "observation": after[i]}
        way = [task["id"], task["seed"], [h.action for h in history[:i]], step.action]
        key = hashlib.sha256(json.dumps(way).encode()).hexdigest()[:16]
        if step.valid:
            rows.append({"key": key, "task": task, "index": i, "of": len(t.steps), "start": start.to_data(), "expected": expected})
    return rows
