"""The contract test of an environment: plays it, does to it what a model may do, and says what to mend. The checks are in contract.py."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gymnasium as gym

from . import contract, contract_tools
from .contract import Clause, Probe
from .env import TextEnv, make

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Problem:
    """One breach of the contract: what was seen, why it matters, and how to mend it."""

    check: str
    what: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}\n  why   {self.why}\n  mend  {self.mend}"


def check_env(env: TextEnv | str | Callable[[], TextEnv], *, episodes: int = 3, seed: int = 0, limit: float = 10.0) -> list[Problem]:
    """Return what is wrong with an environment, [] when nothing is.

    env       an instance (it is copied), a name that `make` knows, or a class or function that makes one
    episodes  how many tasks are played
    limit     seconds that one answer may take
    """
    if episodes < 1 or limit <= 0:
        raise ValueError(f"check_env(episodes={episodes}, limit={limit}): needs at least one episode and a limit above 0")
    probe = Probe(_factory(env), episodes, seed, limit)
    found: list[Problem] = []
    for clause in CLAUSES:
        problems, hangs = _run(clause, probe)
        found += problems
        if hangs or (clause.essential and problems):
            break  # the other checks would only say the same again
    return found


def render(problems: list[Problem]) -> RenderableType:
    """Return the problems for rich's Console.print."""
    from rich.console import Group
    from rich.text import Text

    if not problems:
        return Text("The environment keeps the contract.", style="green")
    parts = [Text.assemble((f"{p.check}: ", "bold red"), (p.what, "bold"), f"\n  why   {p.why}\n  mend  {p.mend}\n") for p in problems]
    return Group(*parts, Text(f"{len(problems)} problem{'s' * (len(problems) > 1)}", style="red"))


def _factory(env: TextEnv | str | Callable[[], TextEnv]) -> Callable[[], TextEnv]:
    if isinstance(env, str):
        return functools.partial(make, env)
    if isinstance(env, gym.Env):
        return functools.partial(copy.deepcopy, env)
    return env


def _run(clause: Clause, probe: Probe) -> tuple[list[Problem], bool]:
    """Check one clause in a thread; return what is wrong and whether it hangs. What the environment raises is a problem."""
    found: list[Problem] = []

    def work() -> None:
        try:
            found.extend(Problem(clause.name, what, clause.why, clause.mend) for what in clause.check(probe))
        except Exception as e:
            why = "An episode that raises is lost, and counts as an infrastructure failure."
            mend = "Make the environment answer here; play it by hand to see the traceback."
            found.append(Problem(clause.name, f"raised {type(e).__name__}: {e!s:.500}", why, mend))

    thread = threading.Thread(target=work, name=f"check {clause.name}", daemon=True)
    thread.start()
    patience = probe.limit * (3 + probe.episodes)
    thread.join(patience)
    hangs = thread.is_alive()
    if hangs:
        mend = "Give what can wait a time-out, and raise EnvError when it strikes."
        found.append(Problem(clause.name, f"no end after {patience:g} s", "One that hangs holds up every update.", mend))
    return list(found), hangs


CLAUSES = [
    Clause(
        "instances",
        contract.instances,
        "Rollouts make many instances; everything else expects gymnasium.Env.",
        "Derive the class from agentgym.TextEnv; keep what can be made only once out of __init__.",
        essential=True,
    ),
    Clause(
        "task list",
        contract.task_list,
        "Splits, curricula and held-out panels are lists of task ids.",
        "Return the same list of distinct str from tasks() every time, for example from a sorted manifest.",
        essential=True,
    ),
    Clause(
        "gymnasium",
        contract.gymnasium,
        "Wrappers, vector environments and other libraries rely on Gymnasium's contract.",
        "See https://gymnasium.farama.org/api/env; begin reset() with self.pick_task(seed, options, self.tasks()).",
    ),
    Clause(
        "tasks by id",
        contract.tasks_by_id,
        "Training and evaluation say which task is played; with another one their numbers are wrong.",
        "Play the id that self.pick_task(seed, options, self.tasks()) returns; it raises TaskError on an unknown one.",
    ),
    Clause(
        "values",
        contract.each_turn(contract.wrong_values),
        "Agents read str, returns are sums of rewards, loops stop at True.",
        "Return (str, float, bool, bool, dict); cut a long observation or raise max_observation; no NaN, no NumPy bool.",
    ),
    Clause(
        "end",
        contract.each_turn(contract.wrong_end),
        "A truncated episode is bootstrapped, a terminated one is not: it cannot be both.",
        "truncated = not terminated and steps >= max_steps",
    ),
    Clause(
        "info",
        contract.each_turn(contract.wrong_info),
        "task_id says what is played, state is the key of anchor groups (GiGPO), success and valid are counted.",
        "Fill info in one method, and call it from reset() and from step().",
    ),
    Clause(
        "determinism",
        contract.determinism,
        "Runs cannot be repeated or resumed, and the members of a group do not start alike.",
        "Draw from self.np_random only; sort sets; keep clocks, object ids and global random numbers out.",
    ),
    Clause(
        "fresh reset",
        contract.fresh_reset,
        "Instances are used again; what one episode leaves behind leaks into the next.",
        "Build the whole state anew in reset().",
    ),
    Clause(
        "step after the end",
        contract.step_after_the_end,
        "A loop that missed the end would go on to collect rewards.",
        "Raise EnvError until the next reset().",
    ),
    Clause(
        "bad actions",
        contract.bad_actions,
        "A model writes anything, and one exception or a long wait loses the episode.",
        "Refuse early what is too long; answer with an observation that says so and info['valid'] = False.",
    ),
    Clause(
        "shared state",
        contract.shared_state,
        "Rollouts play many instances in one process.",
        "Keep all state in self: no class attributes, module globals or shared caches that are written to.",
    ),
    Clause(
        "side by side",
        contract_tools.side_by_side,
        "A blocking environment is played in threads, many episodes at once.",
        "Keep all state in self, and guard what the instances share (a client, a cache) with a lock.",
    ),
    Clause(
        "tools",
        contract_tools.tools,
        "A model knows a tool by its schema and docstring; one that waits must not hold up the other episodes.",
        "Write a docstring; give pure computation timeout=None, or set blocking = True on the class.",
    ),
    Clause(
        "hostile calls",
        contract_tools.hostile_calls,
        "A model gets names and arguments wrong, and learns from the feedback.",
        "Leave step() to ToolEnv, or answer with a text and info['valid'] = False.",
    ),
    Clause(
        "close",
        contract.close,
        "Cleaning up after a failure may close twice.",
        "Let close() do nothing the second time.",
    ),
    Clause(
        "pickling",
        contract.pickling,
        "Workers get their environments by pickle.",
        "Open processes, files and locks in reset(), not in __init__, or define __getstate__ and keep the whole configuration.",
    ),
]
