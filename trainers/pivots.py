"""`agentgym pivots`: which of an expert's decisions are worth training on for this policy? Offline profiling of PivotRL (arXiv 2603.21383).

At every decision the frozen policy plays G local rollouts, a functional reward scores them, and the decisions with a reward that varies and whose
mean is below λ_diff are kept. OURS: λ_diff = 0.6, G = 8. A pivot is one for the policy that was profiled: when the share of groups with spread
(rollout/spread in the log) has fallen below one half, profile again with the trained policy and another --out, and train on from there (OURS).
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agentgym import registry
from agentgym.config import Config, Plugin
from agentgym.config import stages as stages_of
from agentgym.errors import ConfigError, DataError, PolicyError
from agentgym.rollout import Agent, Gym
from agentgym.store import cut_torn_line, dump_line, read_lines, write_atomic
from agentgym.types import Task, Trajectory

from . import setup
from .decisions import Row, check_training, decisions, make_gym, trajectories_of
from .panel import policy_of, progress_bar
from .sampler.pivots import pivot_task

PATIENCE = 3  # batches in a row in which every rollout broke: then something is down


@dataclasses.dataclass
class Yield:
    """What became of the decisions."""

    decisions: int
    profiled: int
    always: int  # no spread: every rollout got a reward
    never: int  # no spread: none did
    easy: int  # spread, but the mean is not below λ_diff
    pivots: int
    broken: int  # rollouts that failed; they are in no mean
    max_mean: float

    def __str__(self) -> str:
        part: Callable[[int], str] = lambda n: f"{n / max(1, self.profiled):.1%}"  # noqa: E731
        left = f", {self.decisions - self.profiled} could not be profiled" if self.profiled < self.decisions else ""
        return (
            f"{self.decisions} decisions{left}: no spread {part(self.always + self.never)} (always right {part(self.always)}, never "
            f"{part(self.never)}), too easy (mean ≥ {self.max_mean:g}) {part(self.easy)}, pivots {self.pivots} ({part(self.pivots)}); "
            f"rollouts that broke: {self.broken}"
        )


def pivots_command(
    config: Config,
    *,
    trajectories: Sequence[str],
    target: str,
    group: int = 8,
    max_mean: float = 0.6,
    out: Path = Path("pivots.jsonl"),
    rewards: Sequence[str] = (),
    tasks: int | None = None,
    model: str | None = None,
) -> Yield:
    """Profile the decisions of `trajectories` with the policy `target` and write the pivots to `out`; see `agentgym pivots --help`."""
    c = _checked(config, group, max_mean, out, rewards)
    policy, renderer, what = policy_of(target, c, model)
    explore = registry.bind("explore", "branch", c.explore.options if c.explore.name == "branch" else {})
    profiles = Profiles(out.with_name(f"{out.stem}.profiles.jsonl"), _settings(c, what, group))
    console, gym = Console(), make_gym(c)
    say = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
    play = functools.partial(play_group, gym, setup.make_agent(c, policy, renderer), explore, c.run.seed, group)

    async def work() -> list[Row]:
        try:
            rows = await candidates(c, trajectories, tasks, lambda text: say(f"{what}: {text}"))
            with progress_bar(console) as bar:
                show = functools.partial(bar.update, bar.add_task("decisions", total=len(rows)))
                await profile(rows, profiles, play, max(1, c.rollout.concurrency // group), show)
            return rows
        finally:
            gym.close()
            await policy.close()

    found = select(asyncio.run(work()), profiles, max_mean, out)
    say(f"{found}")
    if profiles.reason:
        say(f"The first that broke: {profiles.reason}. The same command tries decisions without a profile again.")
    say(f"pivots: {out} (sampler=pivots sampler.file={out}), every profile: {profiles.path}")
    return found


async def candidates(c: Config, trajectories: Sequence[str], tasks: int | None, say: Callable[[str], None]) -> list[Row]:
    """Return the decisions of successful trajectories of the training split, and say how many there are."""
    train = setup.tasks_of(c, c.splits.train)
    found = await trajectories_of(trajectories, c, train, tasks)
    check_training(found, c, train)
    rows, reasons = await decisions(found, c)
    say(f"{len(rows)} decisions of {sum(t.success for t in found)} successful of {len(found)} trajectories")
    if reasons:
        say(f"{len(reasons)} trajectories do not replay and are left out; the first, {reasons[0]}")
    return rows


def _checked(config: Config, group: int, max_mean: float, out: Path, rewards: Sequence[str]) -> Config:
    """Return the configuration of the last stage, the one that will train on the pivots, with the rewards that score the rollouts."""
    if group < 2:
        raise ConfigError(f"--group is {group}; a variance takes at least 2 rollouts")
    if not max_mean > 0:
        raise ConfigError(f"--max-mean is {max_mean}; it is above 0, since a pivot's mean reward is below it")
    if out.suffix == ".gz":
        raise ConfigError(f"--out {out}: the data set is plain JSON lines; leave .gz out")
    c = list(stages_of(config).values())[-1]
    if rewards:
        c = dataclasses.replace(c, rewards={name: Plugin(name) for name in rewards})
    if not c.rewards:
        known = ", ".join(n for n in registry.names("reward") if n.startswith("functional_"))
        raise ConfigError(f"which reward says that an action does what the expert's did? --reward NAME ({known}, or your own), or the recipe pivotrl")
    return c


def _settings(c: Config, policy: str, group: int) -> dict[str, str]:
    """Return all that decides what a profile says, in words."""
    r = c.rollout
    how = {
        "policy": f"{policy} {_weights(policy)}",
        "group": group,
        "env": c.env,
        "context": c.context,
        "action": c.action,
        "rewards": c.rewards,
        "explore": c.explore if c.explore.name == "branch" else "branch",
        "sampling": f"T={r.temperature} top_p={r.top_p} top_k={r.top_k} max_tokens={r.max_tokens} stop={r.stop}",
        "seed": c.run.seed,
    }
    return {name: str(value) for name, value in how.items()}


def _weights(folder: str) -> str:
    """Return a hash of the beginnings of a folder's weights: a folder that was trained on is another policy."""
    h = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else ():
        h.update(f"{file.name} {file.stat().st_size}".encode())
        with open(file, "rb") as f:
            h.update(f.read(4 << 20))
    return h.hexdigest()[:12]


class Profiles:
    """The profiles on disk, appended as they come: key of a decision → its row. A killed call loses the batch under way.

    The first line holds the settings. Raises DataError when the file was made with others.
    """

    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self.path, self.settings = path, settings
        self.rows: dict[str, Row] = {}
        self.broken, self.reason = 0, ""  # rollouts of decisions that got no profile in this call, and why the first one broke
        cut_torn_line(path)
        lines = list(read_lines(path)) if path.exists() else []
        if lines and lines[0].get("settings") != settings:
            there = lines[0].get("settings") or {}
            differ = "; ".join(f"{n}: {there.get(n)!r} there, {v!r} here" for n, v in settings.items() if there.get(n) != v)
            raise DataError(f"{path} holds profiles that were made with other settings ({differ}). Take another --out, or delete that file")
        self.rows = {row["key"]: row for row in lines[1:]}
        self._begun = bool(lines)

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; they are on the disk when this returns."""
        head = [] if self._begun else [{"settings": self.settings}]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as f:
            f.write(b"".join(dump_line(row, str(self.path)) for row in [*head, *rows]))
            f.flush()
            os.fsync(f.fileno())
        self._begun = True
        self.rows |= {row["key"]: row for row in rows}


async def play_group(gym: Gym, agent: Agent, explore: Callable[..., Any], seed: int, size: int, row: Row) -> list[Trajectory]:
    """Play the local rollouts of one decision."""

    async def run(task: Task, index: int) -> Trajectory:
        return await gym.play(agent, task, group=row["key"], seed=setup.seed_of("pivots", seed, row["key"], index))

    found: list[Trajectory] = await explore(pivot_task(row, f"decision {row['index']} of task {row['task']['id']!r}"), run, size=size)
    return found


async def profile(rows: Sequence[Row], profiles: Profiles, play: Callable[[Row], Any], at_once: int, show: Callable[..., Any]) -> None:
    """Profile the decisions that have no profile yet, `at_once` of them in a batch; `play` gives the rollouts of one.

    Rollouts that break are counted and scored never; a decision with fewer than two whole ones gets no profile, and the next call tries again.
    Raises PolicyError when nothing could be profiled at all.
    """
    # By key, which is as good as random: decisions that break (long ones) do not meet in one batch.
    todo = sorted((r for r in rows if r["key"] not in profiles.rows), key=lambda r: r["key"])
    done, lost = len(rows) - len(todo), 0
    show(completed=done)
    for i in range(0, len(todo), at_once):
        batch = todo[i : i + at_once]
        groups = await asyncio.gather(*(play(row) for row in batch))
        played = [t for g in groups for t in g]
        profiles.reason = profiles.reason or next((str(t.error) for t in played if t.failed), "")
        found = [_profile_of(row, g) for row, g in zip(batch, groups, strict=True)]
        profiles.add([p for p in found if p["group"] > 1])
        profiles.broken += sum(p["broken"] for p in found if p["group"] <= 1)
        done += len(batch)
        show(completed=done)
        lost = lost + 1 if all(t.failed for t in played) else 0
        if lost == PATIENCE:
            break
    if rows and not profiles.rows:
        raise PolicyError(f"every rollout broke, so nothing was measured; the first: {profiles.reason}")


def _profile_of(row: Row, group: Sequence[Trajectory]) -> Row:
    """Return μ̂(s) and σ̂²(s) (population) of one decision, over its whole rollouts."""
    scores = [t.outcome for t in group if not t.failed]
    found = {"key": row["key"], "task": row["task"]["id"], "index": row["index"], "group": len(scores), "broken": len(group) - len(scores)}
    return {**found, "mean": statistics.fmean(scores or [0.0]), "variance": statistics.pvariance(scores or [0.0])}


def select(rows: Sequence[Row], profiles: Profiles, max_mean: float, out: Path) -> Yield:
    """Write the decisions with σ̂² > 0 and μ̂ < λ_diff to `out`, with their profile, and return the yield. Raises DataError when there are none."""
    known = [(row, profiles.rows[row["key"]]) for row in rows if row["key"] in profiles.rows]
    spread = [(row, p) for row, p in known if p["variance"] > 0]
    kept = [{**row, **p, "task": row["task"]} for row, p in spread if p["mean"] < max_mean]
    never = sum(p["variance"] == 0 and p["mean"] <= 0 for _, p in known)
    found = Yield(
        decisions=len(rows),
        profiled=len(known),
        always=len(known) - len(spread) - never,
        never=never,
        easy=len(spread) - len(kept),
        pivots=len(kept),
        broken=profiles.broken + sum(p["broken"] for _, p in known),
        max_mean=max_mean,
    )
    if not kept:
        raise DataError(
            f"there is no pivot: {found}. A policy that is never right needs a warm start first; one that always is has learned these trajectories"
        )
    write_atomic(out, b"".join(dump_line(row, str(out)) for row in kept).decode())
    return found
