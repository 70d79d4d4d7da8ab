"""The contract of an environment (see env.py) as a list of clauses: how each is checked, why it matters, how to mend a breach."""

from __future__ import annotations

import copy
import math
import pickle
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.utils.env_checker import data_equivalence

from .env import TextEnv
from .errors import AgentGymError

MAX_STEPS = 100  # of one episode: enough to see an end, and no wait where none comes
BAD_ACTIONS = {
    "an empty string": "",
    "white space": " \n\t ",
    "a line break": "go\nnorth",
    "Unicode": "öffne die Tür 开门 🚪 \u202e\u0000",
    "a lone surrogate": "\ud800",
    "100,000 characters": "take " * 20_000,
    "markup": "<action>{'a': [1, 2}</action><|im_end|>%s%d{0}",
    "an unknown command": "frobnicate the quux",
}
INFO: dict[str, type] = {"task_id": str, "state": str, "success": bool, "valid": bool}


class Turn(NamedTuple):
    """One answer of an environment."""

    action: str | None  # None: this is what reset() gave
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass
class Probe:
    """What the clauses share: how to make an instance, how much to play, and the task ids once they are known."""

    make: Callable[[], TextEnv]
    episodes: int
    seed: int
    limit: float
    tasks: list[str] = field(default_factory=list)

    def some_tasks(self) -> list[tuple[str, int]]:
        """Return `episodes` tasks spread over the split, each with a seed."""
        n = min(self.episodes, len(self.tasks))
        return [(self.tasks[i * len(self.tasks) // n], self.seed + i) for i in range(n)]


@dataclass(frozen=True)
class Clause:
    """One clause. `check` yields what it found; `why` and `mend` go with each finding."""

    name: str
    check: Callable[[Probe], Iterator[str]]
    why: str
    mend: str
    essential: bool = False  # when it is broken, the others cannot be checked


def play(env: TextEnv, task: str, seed: int, *, expert: bool = False) -> Iterator[Turn]:
    """Play a task, by its expert where it has one and that is asked for, else at random; a seed plays the same way again."""
    observation, info = env.reset(seed=seed, options={"task": task})
    env.action_space.seed(seed)
    rng, player = random.Random(f"{seed} {task}"), None
    if expert:
        try:
            player = env.expert()
        except AgentGymError:
            pass  # an environment need not have one
    yield Turn(None, observation, 0.0, False, False, copy.deepcopy(info))
    for _ in range(MAX_STEPS):
        if player:
            action = player.act(observation, info)
        else:
            action = rng.choice(info["admissible"]) if info.get("admissible") else env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        yield Turn(action, observation, reward, terminated, truncated, copy.deepcopy(info))  # type: ignore[arg-type]
        if terminated or truncated:
            return


def difference(one: Turn, two: Turn) -> str:
    """Say in which field two turns differ, '' when in none."""
    for name, a, b in zip(Turn._fields, one, two, strict=True):
        if isinstance(a, dict) and isinstance(b, dict):
            for key in {**a, **b}:
                if key not in a or key not in b or not data_equivalence(a[key], b[key], exact=True):
                    return f"info[{key!r}]: {a.get(key)!r:.80} and {b.get(key)!r:.80}"
        elif not data_equivalence(a, b, exact=True):
            return f"{name}: {a!r:.80} and {b!r:.80}"
    return ""


# ------------------------------------------------------------------------------------------------------------ the checks


def instances(probe: Probe) -> Iterator[str]:
    """That instances can be made."""
    for _ in range(2):
        env = probe.make()
        if not isinstance(env, gym.Env):
            yield f"a {type(env).__name__} was made, which is no gymnasium.Env"
            return
        env.close()


def task_list(probe: Probe) -> Iterator[str]:
    """That the task ids are a fixed list."""
    with closing(probe.make()) as first, closing(probe.make()) as second:
        tasks = first.tasks()
        if not isinstance(tasks, list) or not tasks or not all(isinstance(t, str) for t in tasks):
            yield f"tasks() returned {tasks!r:.80}, expected a list of str that is not empty"
            return
        probe.tasks = list(tasks)
        if len(set(tasks)) < len(tasks):
            yield f"tasks() has {len(tasks) - len(set(tasks))} ids twice"
        if probe.tasks != first.tasks() or probe.tasks != second.tasks():
            yield "tasks() gives another list the second time"


def gymnasium(probe: Probe) -> Iterator[str]:
    """Gymnasium's own checks."""
    with warnings.catch_warnings(record=True) as warned, closing(probe.make()) as env:
        warnings.simplefilter("always")
        try:
            # No render check: it builds environments from their spec alone, without the options they were made with.
            gymnasium_check(env.unwrapped, skip_render_check=True)
        except Exception as e:
            yield str(e) or type(e).__name__
    for text in dict.fromkeys(str(w.message) for w in warned):
        if "WARN: " in text:  # how Gymnasium marks its own
            yield text.partition("WARN: ")[2].removesuffix("\x1b[0m")


def tasks_by_id(probe: Probe) -> Iterator[str]:
    """That the task that is asked for is played."""
    with closing(probe.make()) as env:
        for task, seed in probe.some_tasks():
            for s in (seed, seed + 1):
                _, info = env.reset(seed=s, options={"task": task})
                if info.get("task_id") != task:
                    yield f"reset(options={{'task': {task!r}}}) plays task {info.get('task_id')!r}"
                    return
        try:
            env.reset(seed=probe.seed, options={"task": "no such task ☃"})
            yield "an unknown task id is played, expected TaskError"
        except AgentGymError:
            pass
        except Exception as e:
            yield f"an unknown task id raises {type(e).__name__}, expected TaskError"


def each_turn(wrong: Callable[[Turn, TextEnv], Iterator[str]]) -> Callable[[Probe], Iterator[str]]:
    """Make a check of a check of single turns: plays by turns as the expert and at random, tells each finding once."""

    def check(probe: Probe) -> Iterator[str]:
        seen: set[str] = set()
        with closing(probe.make()) as env:
            for i, (task, seed) in enumerate(probe.some_tasks()):
                for turn in play(env, task, seed, expert=i % 2 == 0):
                    for found in wrong(turn, env):
                        if found not in seen:
                            seen.add(found)
                            yield found

    return check


def wrong_values(turn: Turn, env: TextEnv) -> Iterator[str]:
    """That observation, reward and flags are what they should be."""
    where = "reset()" if turn.action is None else "step()"
    if turn.observation not in env.observation_space:
        yield f"{where} gave an observation outside of observation_space: {turn.observation!r:.60}"
    if isinstance(turn.reward, bool) or not isinstance(turn.reward, int | float) or not math.isfinite(turn.reward):
        yield f"{where} gave the reward {turn.reward!r}"
    for name in ("terminated", "truncated"):
        if not isinstance(getattr(turn, name), bool):
            yield f"{name} is {getattr(turn, name)!r}"


def wrong_end(turn: Turn, env: TextEnv) -> Iterator[str]:
    """That an episode ends in one way."""
    if turn.terminated and turn.truncated:
        yield "terminated and truncated are both True"


def wrong_info(turn: Turn, env: TextEnv) -> Iterator[str]:
    """That info has its keys."""
    where = "reset()" if turn.action is None else "step()"
    for key, kind in INFO.items():
        if not isinstance(turn.info.get(key), kind):
            got = repr(turn.info[key]) if key in turn.info else "missing"
            yield f"info[{key!r}] is {got} after {where}, expected {kind.__name__}"
    admissible = turn.info.get("admissible", [])
    if not isinstance(admissible, list) or not all(isinstance(a, str) for a in admissible):
        yield f"info['admissible'] is {admissible!r:.60} after {where}, expected a list of str (or no such key)"


def determinism(probe: Probe) -> Iterator[str]:
    """That one seed plays one way."""
    for i, (task, seed) in enumerate(probe.some_tasks()):
        with closing(probe.make()) as first, closing(probe.make()) as second:
            one, two = (play(env, task, seed, expert=i % 2 == 1) for env in (first, second))
            for number, (a, b) in enumerate(zip(one, two, strict=False)):
                if differs := difference(a, b):
                    yield f"task {task!r}, step {number}: two instances with one seed differ in {differs}"
                    return


def fresh_reset(probe: Probe) -> Iterator[str]:
    """That reset() forgets."""
    with closing(probe.make()) as env:
        before = [list(play(env, task, seed)) for task, seed in probe.some_tasks()]
        for (task, seed), turns in zip(probe.some_tasks(), before, strict=True):
            if differs := next(filter(None, map(difference, turns, play(env, task, seed))), ""):
                yield f"task {task!r} goes another way after other episodes: {differs}"
                return


def step_after_the_end(probe: Probe) -> Iterator[str]:
    """That a step after the end is refused."""
    with closing(probe.make()) as env:
        for task, seed in probe.some_tasks():
            *_, last = play(env, task, seed, expert=True)
            if not (last.terminated or last.truncated):
                continue  # no end within MAX_STEPS: the agent loop has its own limit
            try:
                env.step("look")
                yield "step() after the end is answered"
            except (AgentGymError, gym.error.Error):
                continue
            except Exception as e:
                yield f"step() after the end raises {type(e).__name__}"
            return


def bad_actions(probe: Probe) -> Iterator[str]:
    """That nothing a model may write breaks it."""
    with closing(probe.make()) as env:
        for name, action in BAD_ACTIONS.items():
            env.reset(seed=probe.seed, options={"task": probe.tasks[0]})
            started = time.perf_counter()
            try:
                *_, info = env.step(action)
            except Exception as e:
                yield f"{name} raises {type(e).__name__}: {e!s:.200}"
                continue
            if (took := time.perf_counter() - started) > probe.limit:
                yield f"{name} took {took:.1f} s (limit {probe.limit:g} s)"
            if not isinstance(info.get("valid"), bool):
                yield f"after {name}, info['valid'] is {info.get('valid')!r}"


def shared_state(probe: Probe) -> Iterator[str]:
    """That instances are independent."""
    jobs = [(probe.tasks[0], probe.seed), (probe.tasks[-1], probe.seed + 1)]
    alone = []
    for task, seed in jobs:
        with closing(probe.make()) as env:
            alone.append(list(play(env, task, seed)))
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(probe.make())) for _ in jobs]
        turns = [play(env, task, seed) for env, (task, seed) in zip(envs, jobs, strict=True)]
        for number in range(max(map(len, alone))):
            for i in range(len(jobs)):  # by turns, so that each could step on the other's toes
                turn = next(turns[i], None)
                expected = alone[i][number] if number < len(alone[i]) else None
                differs = difference(turn, expected) if turn and expected else "length" * ((turn is None) != (expected is None))
                if differs:
                    yield f"step {number} of an episode is another while a second instance plays: {differs}"
                    return


def close(probe: Probe) -> Iterator[str]:
    """That close() may be called twice."""
    env = probe.make()
    env.reset(seed=probe.seed)
    env.close()
    try:
        env.close()
    except Exception as e:
        yield f"the second close() raises {type(e).__name__}: {e!s:.200}"


def pickling(probe: Probe) -> Iterator[str]:
    """That a pickled copy plays the same."""
    task = probe.tasks[0]
    with closing(probe.make()) as env:
        try:
            copied = _copy_by_pickle(env)
        except Exception as e:
            yield f"a new instance does not pickle: {type(e).__name__}: {e!s:.200}"
            return
        with closing(copied):
            pairs = zip(play(env, task, probe.seed), play(copied, task, probe.seed), strict=False)
            if differs := next(filter(None, (difference(a, b) for a, b in pairs)), ""):
                yield f"a pickled copy plays differently: {differs}"


def _copy_by_pickle(env: TextEnv) -> TextEnv:
    try:
        return pickle.loads(pickle.dumps(env))
    except Exception:  # classes of a notebook or inside of a function have no importable name
        import cloudpickle

        return pickle.loads(cloudpickle.dumps(env))
