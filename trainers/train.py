"""LOOP 2, the training loop. It knows parts, not methods: no name of any method stands in this file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agentgym import registry
from agentgym.config import Config
from agentgym.config import stages as stages_of
from agentgym.errors import AgentGymError, ConfigError
from agentgym.evaluate import Report, evaluate
from agentgym.rollout import Agent, check_some, play_groups
from agentgym.types import Task, Trajectory

from . import setup, streams
from .ahead import goes_ahead
from .batch import Batch, pack
from .call import call, takes_state
from .cluster._launch import trained_elsewhere
from .diagnose import diagnose, disagreement, staleness
from .session import Session
from .streams import Round, fill, timed
from .update import Updater

Groups = list[list[Trajectory]]


def train(config: Config, *, resume: bool = False) -> dict[str, Any]:
    """Run every stage of `config`; return what summary.json holds. `resume` goes on from the run folder's last checkpoint."""
    found = trained_elsewhere(config, resume=resume)
    return train_here(config, resume=resume) if found is None else found


def train_here(config: Config, *, resume: bool = False) -> dict[str, Any]:
    """Like `train`, in this process."""
    session = Session.open(config, resume=resume)
    with asyncio.Runner() as runner:
        try:
            return runner.run(_train(session))
        except (AgentGymError, OSError, KeyboardInterrupt) as e:
            if not isinstance(e, ConfigError):  # that one would come again
                e.add_note(f"Go on from the last checkpoint with: agentgym resume {session.dir}")
            raise
        finally:
            runner.run(session.close())


async def _train(s: Session) -> dict[str, Any]:
    stages = list(stages_of(s.config).items())
    loops = [Stage(s, name, config) for name, config in stages]  # every part is bound and checked before any work starts
    if "before" not in s.state.evals:
        await held_out(s, "before", full=True)
    for i, loop in enumerate(loops):
        if s.state.stage > i:
            continue
        s.enter(i, loop.name, loop.parts(), reference="ref_logp" in loop.needs)
        await loop.run()
        last = i == len(loops) - 1
        await held_out(s, "final" if last else loop.name, full=True)
        s.leave(i)
    return s.finish()


class Stage:
    """One stage: the same model as the others, its own data, credit, objectives and optimiser."""

    def __init__(self, session: Session, name: str, config: Config) -> None:
        self.s, self.name, self.c = session, name, config
        c, model = config, session.model
        self.policy = session.policy if c.policy == session.config.policy else setup.make_policy(c.policy, model, session.renderer)
        # What an expert plays says nothing about the model, so it goes by another name.
        self.kind = "rollout" if self.policy is session.policy else "demonstration"
        setup.check_alone(c, goes_ahead(c) or session.crew is not None)
        self.agent = setup.make_agent(c, self.policy, session.renderer)
        self.gym = session.gym(c, c.splits.train, name)
        self.explore = registry.bind("explore", c.explore.name, c.explore.options)
        self.sampler = registry.bind("sampler", c.sampler.name, c.sampler.options)(session.train_tasks, setup.seed_of(c.run.seed, name))
        self.credit = registry.bind("credit", c.credit.name, c.credit.options) if c.credit else None
        self.memory: dict[str, Any] = {}
        self.fillers, self.critic = setup.make_fillers(c, model, session.renderer)
        self.ahead = session.ahead(name, self.sampler.take) if goes_ahead(c) else None
        # Where others play meanwhile, this process learns alone: the cores are theirs.
        self.crew = None if self.ahead else session.crew
        self.updater = Updater.from_config(c, model, crew=self.crew or session.sharded, stage=name)
        self.updater.check(self.credit, self.fillers.values())
        self.needs = self.updater.needs(self.credit, self.fillers.values())
        if getattr(self.policy, "samples_elsewhere", False):  # by another program, which may disagree: that is measured at every update
            self.needs |= {"logp_train"}
        streams.check_read(self.needs, self.fillers)

    def parts(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of this stage: name → object with state_dict and load_state_dict, or a plain dict."""
        ahead = {"ahead": self.ahead} if self.ahead else {}
        return {"optimizer": self.updater, "sampler": self.sampler, "memory": self.memory, **ahead, **self.fillers}

    async def run(self) -> None:
        """Update until the count is reached or the time is up."""
        self.tell()
        try:
            if self.ahead:
                self.ahead.start(self.s.state.version)
            await self._updates()
        finally:
            await self.close()

    async def _updates(self) -> None:
        s, count = self.s, self.c.update.count
        while s.state.update < count and not s.out_of_time(self.c.run.minutes):
            started = time.perf_counter()
            groups, drawn = await self.rollouts()
            waiting = {n: x for others in (self.ahead, s.fleet) if others for n, x in others.metrics().items()}
            rolled = time.perf_counter()
            batch, metrics = self.learn_from(groups)
            learnt = time.perf_counter()
            self.publish()
            metrics |= getattr(self.policy, "metrics", dict)()
            now = time.perf_counter()
            seconds = {"seconds/rollout": rolled - started, "seconds/update": now - rolled, "seconds/publish": now - learnt}
            s.record(self.name, {**rollout_metrics(drawn, self.kind), **waiting, **metrics, **seconds, **s.timings(batch)}, groups, batch)
            if self.c.eval.every and s.state.update % self.c.eval.every == 0 and s.state.update < count:
                await held_out(s, f"{self.name}-{s.state.update}", full=False)
            s.maybe_save(self.parts())

    async def rollouts(self) -> tuple[Groups, Groups]:
        """Return (groups to learn from, all groups that were played); dynamic sampling plays on until enough groups have spread."""
        r, kept, drawn = self.c.rollout, [], []
        for draw in range(r.max_draws if r.drop_uniform else 1):
            groups = await (self.ahead.next(r.tasks, progress=self.s.progress("groups")) if self.ahead else self.play(draw))
            self.sampler.observe(groups)
            drawn += groups
            kept += [g for g in groups if not r.drop_uniform or has_spread(g)]
            if len(kept) >= r.tasks:
                break
        return kept[: r.tasks] or drawn, drawn

    async def play(self, draw: int) -> Groups:
        """Play the next tasks with the present weights."""
        r = self.c.rollout
        tasks = self.sampler.take(r.tasks)
        keyed = [(f"{self.name}-{self.s.state.update}-{draw}-{i}", t, self.seed("group", draw, i)) for i, t in enumerate(tasks)]

        async def work(mine: Sequence[tuple[str, Task, int]]) -> Groups:
            return await play_groups(self.gym, self.agent, mine, self.explore, size=r.group_size, progress=self.s.progress("rollouts"))

        return check_some(await self.s.ranks.deal(keyed, work))

    def learn_from(self, groups: Groups) -> tuple[Batch, dict[str, float]]:
        """Pack, fill the streams that somebody asks for, assign credit, and update critic and policy."""
        u, played = self.c.update, [t for g in groups for t in g]
        batch = pack(played, discount=self.c.discount)
        kept = [t for t in played if not t.failed]
        round = Round(kept, self.s.state.update, self.updater.temperature, u.tokens_per_microbatch, self.updater.share, self.crew)
        fill(batch, self.needs, self.s.model, self.s.reference, round, self.fillers)
        with timed(batch, "learn/credit"):
            metrics = self.assign(batch, self.credit) if self.credit is not None else {}
        metrics |= staleness(batch, self.s.state.version) | disagreement(batch, self.s.state.version)
        if self.critic is not None:
            with timed(batch, "learn/critic"):
                metrics |= self.critic.learn(batch, round, self.generator("critic"))
        if self.critic is None or not self.critic.warming(round.update):  # the policy stays as it is until its critic knows something
            with timed(batch, "learn/policy"):
                metrics |= self.updater.run(batch, passes=u.passes, minibatches=u.minibatches, generator=self.generator("minibatches"))
        return batch, metrics

    def assign(self, batch: Batch, credit: Callable[..., Any]) -> dict[str, float]:
        """Give every written token its advantage; return what the method says about itself, and what holds for all methods."""
        extra = {"state": self.memory} if takes_state(credit) else {}
        found = call(credit, batch, **extra)
        advantage, metrics = found if isinstance(found, tuple) else (found, {})
        batch.set_advantage(advantage, penalty="step_penalty" not in registry.columns_of(credit))
        return {f"credit/{n}": float(x) for n, x in metrics.items()} | diagnose(batch)

    def publish(self) -> None:
        """Hand the new weights to whoever samples."""
        self.s.state.update += 1
        self.s.state.version += 1
        self.s.load(self.s.state.version)
        self.tell()
        if self.ahead:
            self.ahead.publish(self.s.state.version)

    def tell(self) -> None:
        """Tell a policy that only this stage has which weights it plays with."""
        if self.policy is not self.s.policy:
            self.policy.load(None, self.s.state.version)

    def seed(self, *parts: Any) -> int:
        return setup.seed_of(self.c.run.seed, self.name, self.s.state.update, *parts) % 2**40

    def generator(self, what: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed(what))

    async def close(self) -> None:
        if self.ahead:
            self.ahead.close()
        self.gym.close()
        if self.policy is not self.s.policy:
            await self.policy.close()


def has_spread(group: list[Trajectory]) -> bool:
    """Return whether a group's outcomes differ: without it there is nothing to compare."""
    return len({t.outcome for t in group if not t.failed}) > 1


def rollout_metrics(groups: Groups, kind: str = "rollout") -> dict[str, float]:
    """Return what the episodes of one update looked like; failed ones are counted and left out of every mean."""
    played = [t for g in groups for t in g]
    good = [t for t in played if not t.failed]
    steps = [x for t in good for x in t.steps]
    mean: Callable[[list[float]], float] = lambda xs: sum(xs) / max(len(xs), 1)  # noqa: E731
    out = {
        "success": mean([float(t.success) for t in good]),
        "outcome": mean([t.outcome for t in good]),
        "steps": mean([float(len(t.steps)) for t in good]),
        "invalid": mean([float(not x.valid) for x in steps]),
        "truncated": mean([float(t.status == "truncated") for t in good]),
        "errors": float(len(played) - len(good)),
        "episodes": float(len(played)),
        "turns": float(len(steps)),
        "written": float(written(good)),
        "spread": mean([float(has_spread(g)) for g in groups]),
    }
    return {f"{kind}/{name}": x for name, x in out.items()}


def written(played: Iterable[Trajectory]) -> int:
    """Return how many tokens the policy wrote in these episodes; 0 for one that writes text only."""
    return sum(len(x.completion.tokens or ()) for t in played for x in t.steps)


async def held_out(s: Session, label: str, *, full: bool) -> Report:
    """Evaluate the current weights on the held-out panel and keep the result."""
    agent: Agent = setup.make_agent(s.config, s.policy, s.renderer, evaluating=True)
    tasks = s.panel.some(None if full else s.config.eval.tasks)
    finished: list[Trajectory] = []
    k, started = s.config.eval.k, time.perf_counter()
    play = await s.ranks.deal_episodes(s.panel.player(agent), [(t, i) for t in tasks for i in range(k)])

    async def keep(task: Any, sample: int) -> Trajectory:
        out = await play(task, sample)
        finished.append(out)
        return out

    report = await evaluate(keep, tasks, k=k, concurrency=len(tasks) * k, progress=s.progress(f"evaluation {label}"))
    s.check()
    report = replace(report, seconds=time.perf_counter() - started)  # where the episodes were dealt to processes, they were played before
    s.evaluated(label, report, {"eval/seconds": report.seconds, "eval/written": float(written(finished))})
    s.keep("eval", label, sorted(finished, key=lambda t: t.task.id))
    return report


def resume(run_dir: Path) -> dict[str, Any]:
    """Go on with the run in `run_dir` under the configuration that it was started with."""
    return train(Session.config_of(run_dir), resume=True)
