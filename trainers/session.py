"""What outlives a stage: the run folder, the model, the held-out panel, the checkpoints, the log, and where the run stands."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentgym import config as configuration
from agentgym import registry, store
from agentgym.config import Config
from agentgym.errors import CheckpointError, ConfigError
from agentgym.evaluate import Report
from agentgym.logger import Loggers
from agentgym.policy import Policy
from agentgym.renderer import Renderer
from agentgym.rollout import Gym
from agentgym.types import Task, Trajectory

from . import setup
from .ahead import Ahead, goes_ahead
from .batch import Batch
from .checkpoint import Checkpoints, newest, write_json
from .cluster._fleet import Fleet
from .cluster._open import ahead_of, open_fleet
from .crew import Crew, CrewGym
from .manifest import manifest
from .model import end_ids, load_weights, save_model
from .ranks import Alone, Ranks, join
from .streams import Reference

if TYPE_CHECKING:
    from .shard import Sharded
    from .shard_files import ShardedCheckpoints

SHOWN = [f"{kind}/{name}" for kind in ("rollout", "demonstration") for name in ("success", "steps", "invalid", "errors")]
SHOWN += ["loss", "grad_norm", "seconds/rollout", "seconds/update"]


@dataclass
class State:
    """Where a run stands. All of it is in every checkpoint."""

    stage: int = 0  # index of the stage under way
    update: int = 0  # updates done in this stage
    version: int = 0  # updates done in all: the version of the weights
    wall_s: float = 0.0  # seconds of work, over all resumes
    best: float = -1.0
    evals: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Session:
    """A run under way."""

    config: Config
    dir: Path
    model: Any
    tokenizer: Any
    renderer: Renderer
    policy: Policy
    train_tasks: list[Task]
    panel: setup.Panel
    loggers: Loggers
    checkpoints: Checkpoints | ShardedCheckpoints
    crew: Crew | None = None
    fleet: Fleet | None = None
    ranks: Alone = field(default_factory=Alone)
    sharded: Sharded | None = None
    state: State = field(default_factory=State)
    reference: Reference | None = None
    saved: dict[str, Any] | None = None  # state of the parts of the stage under way, from the checkpoint
    started: float = field(default_factory=time.perf_counter)

    @staticmethod
    def config_of(run_dir: Path) -> Config:
        """Read the configuration that a run was started with. Raises CheckpointError when the folder holds no run."""
        path = Path(run_dir) / "config.json"
        if not path.is_file():
            raise CheckpointError(f"{run_dir} holds no run (no config.json); give the folder that `agentgym run` printed")
        return configuration.build(json.loads(path.read_text("utf-8")))

    @classmethod
    def open(cls, config: Config, *, resume: bool) -> Session:
        """Make or reopen the run folder and build every part."""
        ranks = join(config, resume=resume)
        folder = Path(config.run.dir)
        _check_folder(folder, resume=resume)
        torch.manual_seed(config.run.seed)
        beside = config.run.workers > 1 or any(goes_ahead(c) for c in configuration.stages(config).values())
        if config.run.threads or beside:
            torch.set_num_threads(max(1, config.run.threads))
        if not registry.needs_model(config.policy.name):
            raise ConfigError(
                f"policy: {config.policy.name} at the top is who would be evaluated, and it has no weights to train. "
                f"Set it inside the stage that shall learn from it (stages.warm.policy={config.policy.name})"
            )
        train_tasks, held_out = setup.tasks_of(config, config.splits.train), setup.tasks_of(config, config.splits.eval)
        setup.check_disjoint(train_tasks, held_out)
        model, tokenizer, sharded = _model(config, ranks)
        renderer = Renderer(tokenizer, stop_ids=end_ids(model))
        policy = setup.make_policy(config.policy, model, renderer)
        setup.check_alone(config, beside)
        crew = Crew(config, model, tokenizer, n=config.run.workers) if config.run.workers > 1 else None
        checkpoints = _checkpoints(config, folder, sharded)
        loggers = _begin_folder(config, folder, train_tasks, held_out) if ranks.first else Loggers({})
        fleet = open_fleet(config, model, tokenizer, alone=sharded is None, say=loggers.text)
        panel = setup.Panel(held_out, make_gym(fleet or crew, config, config.splits.eval, "eval", ranks.n), config.run.seed)
        self = cls(config, folder, model, tokenizer, renderer, policy, train_tasks, panel, loggers, checkpoints, crew, fleet, ranks, sharded)
        if resume:
            self._restore()
        self._greet()
        return self

    def _greet(self) -> None:
        n = sum(p.numel() for p in self.model.parameters())
        self.loggers.text(
            f"run {self.dir}: {self.config.env.name}, {len(self.train_tasks)} training and {len(self.panel.tasks)} held-out tasks, "
            f"model {self.config.model.name} ({n / 1e6:.2f} M parameters, {len(self.tokenizer)} tokens)"
            + (f", sharded over {self.ranks.n} process(es)" if self.sharded else "")
        )

    def gym(self, config: Config, split: str, agent: str) -> Gym:
        """Return a gym for one stage of the run."""
        return make_gym(self.fleet or self.crew, config, split, agent, self.ranks.n)

    def load(self, version: int) -> None:
        """Tell whoever samples that the weights changed."""
        self.policy.load(None, version)
        for others in (self.crew, self.fleet):
            if others:
                others.load(version)

    def ahead(self, stage: str, take: Callable[[int], Sequence[Task]]) -> Ahead:
        """Return a stage's asynchronous rollouts."""
        return ahead_of(self.fleet, self.config, stage, self.model, self.tokenizer, take, say=self.loggers.text)

    def check(self) -> None:
        """Raise PolicyError if a process that plays for this one failed: whoever counts broken episodes must not count these."""
        for others in (self.crew, self.fleet):
            if others:
                others.check()

    # -- progress -----------------------------------------------------------------------------------------------------------------

    def progress(self, name: str) -> Callable[[int, int], None]:
        """Return a callback that shows `name` going from 0 to its total."""
        return lambda done, total: self.loggers.progress(name, done, total)

    def elapsed(self) -> float:
        """Return seconds of work so far, over all resumes."""
        return self.state.wall_s + time.perf_counter() - self.started

    def out_of_time(self, minutes: float) -> bool:
        """Return whether the run has used up its minutes."""
        return bool(minutes) and bool(self.ranks.agree(self.elapsed() > 60 * minutes))

    def record(self, stage: str, metrics: dict[str, float], groups: list[list[Trajectory]], batch: Batch) -> None:
        """Log one update, and store its trajectories now and then."""
        first = {n: metrics[n] for n in SHOWN if n in metrics}  # a console shows the first few columns
        self.loggers.log(self.state.version, first | metrics | {"update": float(self.state.update), "wall_s": self.elapsed()}, stage=stage)
        every = self.config.run.trajectories_every
        if every and self.state.update % every == 1 % every:
            kept = [t for g in groups for t in g if not t.failed]
            self.keep("trajectories", f"{stage}-{self.state.update:06d}", kept, advantages=batch.advantage_of_steps())

    def keep(self, kind: str, label: str, trajectories: list[Trajectory], **columns: Any) -> None:
        """Store trajectories in the folder `kind` under `label`, in place of older ones; one process does."""
        path = self.dir / kind / f"{label}.jsonl.gz"
        if self.ranks.first:
            path.unlink(missing_ok=True)
            store.write(path, trajectories, **columns)

    def timings(self, batch: Batch) -> dict[str, float]:
        """Return the seconds that each extra piece of work of this update took: streams, and the critic's own learning."""
        return {f"seconds/{n}": t for n, t in batch.timings.items()}

    def evaluated(self, label: str, report: Report, cost: dict[str, float]) -> None:
        """Keep the result of an evaluation and show it; `cost`: further metrics, which are only logged."""
        self.state.evals[label] = {**report.summary(), "version": self.state.version, "wall_s": self.elapsed()}
        found = {"eval/success": report.success, "eval/low": report.low, "eval/high": report.high}
        self.loggers.log(self.state.version, found | cost, stage=label)
        self.loggers.text(f"held-out {label}: {report.line()}")
        if report.success > self.state.best:
            self.state.best = report.success
            self._save({}, best=True, export=True)

    # -- checkpoints --------------------------------------------------------------------------------------------------------------

    def enter(self, index: int, name: str, parts: dict[str, Any], *, reference: bool) -> None:
        """Begin stage `index`, or go on in it with the parts as the checkpoint has them; `reference`: keep a frozen copy of its start."""
        self.state.stage = index
        self.reference = self._reference(name, anew=self.saved is None) if reference else None
        if self.saved is None:
            return
        for name, part in parts.items():
            if isinstance(part, dict):
                part.update(self.saved[name])
            else:
                part.load_state_dict(self.saved[name])
        self.saved = None

    def _reference(self, name: str, *, anew: bool) -> Reference:
        """Return the model as it was when the stage began; its weights are on disk, since a resumed run has only the later ones."""
        out = Reference(self.model)
        if out.own is not None:  # else adapters are switched off: nothing to keep
            folder = self.dir / "reference" / name
            if self.sharded:
                (self.sharded.save if anew else self.sharded.load)(folder, dict(out.own.named_parameters()))
            elif anew:
                save_model(self.model, self.tokenizer, folder)
            else:
                load_weights(out.own, folder)
        if self.crew:
            self.crew.lend(out.own)
        return out

    def leave(self, index: int) -> None:
        """End stage `index`: the next one begins at its update 0."""
        self.state.stage, self.state.update = index + 1, 0
        self._save({}, export=True)

    def maybe_save(self, parts: dict[str, Any]) -> None:
        """Write a checkpoint when one is due."""
        if self.state.update % self.config.checkpoint.every == 0:
            self._save({n: p if isinstance(p, dict) else p.state_dict() for n, p in parts.items()})

    def _save(self, parts: dict[str, Any], *, best: bool = False, export: bool = False) -> None:
        """Write a checkpoint; `export`: with a whole model, which a sharded one takes time to put together."""
        state = dataclasses.asdict(self.state) | {"wall_s": self.elapsed()}
        content = {"state": state, "parts": parts, "complete": not best}
        if isinstance(self.checkpoints, Checkpoints):
            self.checkpoints.save(self.state.version, lambda folder: save_model(self.model, self.tokenizer, folder), content, best=best)
        else:
            self.checkpoints.save(self.state.version, self.tokenizer if export else None, content, best=best)

    def _restore(self) -> None:
        found = self.checkpoints.load_latest()
        if found is None:
            self.loggers.text(f"{self.dir} has no checkpoint yet: starting from the beginning")
            self.loggers.rewind(-1)
            return
        folder, saved = found
        if self.sharded is None:
            load_weights(self.model, folder / "model")
        self.state = State(**saved["state"])
        self.saved = saved["parts"] or None
        self.loggers.rewind(self.state.version, self.state.evals)
        self.load(self.state.version)

    # -- end ----------------------------------------------------------------------------------------------------------------------

    def finish(self) -> dict[str, Any]:
        """Write summary.json, the learning curve and the last episodes; return the summary."""
        from .finish import finish

        return finish(self)

    async def close(self) -> None:
        """Free what the run holds; safe after any failure."""
        self.panel.gym.close()
        await self.policy.close()
        for others in (self.crew, self.fleet):
            if others:
                others.close()
        self.loggers.close()
        self.checkpoints.close()
        self.ranks.close()


def _check_folder(folder: Path, *, resume: bool) -> None:
    """Raise an error where a run cannot begin, or cannot go on."""
    if resume:
        if (folder / "summary.json").exists():
            raise CheckpointError(f"the run in {folder} is finished (it has a summary.json); start a new one with `agentgym run`")
    elif (folder / "metrics.jsonl").exists() or newest(folder / "checkpoints"):  # one that never got that far may be begun anew
        raise ConfigError(f"{folder} already holds a run. Choose another run.dir, or go on with it: agentgym resume {folder}")


def _model(config: Config, ranks: Alone) -> tuple[Any, Any, Sharded | None]:
    """Return model, tokenizer, and what spreads the model over processes, if anything does."""
    if isinstance(ranks, Ranks):
        from .shard import load  # a run in one process needs none of it

        return load(config, ranks)
    return *setup.model_of(config, config.run.device), None


def _checkpoints(config: Config, folder: Path, sharded: Sharded | None) -> Checkpoints | ShardedCheckpoints:
    options: dict[str, Any] = {"keep_last": config.checkpoint.keep_last, "fingerprint": configuration.fingerprint(config)}
    if sharded is None:
        return Checkpoints(folder / "checkpoints", **options)
    from .shard_files import ShardedCheckpoints

    return ShardedCheckpoints(folder / "checkpoints", sharded, **options)


def _begin_folder(config: Config, folder: Path, train_tasks: list[Task], held_out: list[Task]) -> Loggers:
    """Write what the run is, and return its loggers."""
    write_json(folder / "config.json", configuration.to_layer(config))
    loggers = Loggers({n: registry.bind("logger", p.name, p.options)(folder) for n, p in config.loggers.items()})
    splits = {config.splits.train: setup.split_hash(train_tasks), config.splits.eval: setup.split_hash(held_out)}
    write_json(folder / "manifest.json", manifest(config, splits))
    return loggers


def make_gym(others: Crew | Fleet | None, config: Config, split: str, agent: str, ranks: int = 1) -> Gym:
    """Return a gym over `split`; with a crew or fleet, its episodes are dealt to all processes, which know the player as `agent`.

    `ranks`: processes that play side by side and share the places.
    """
    if isinstance(others, Fleet):
        return others.gym(config, split, agent)
    make, places, timeout = setup.make_env(config, split), -(-config.rollout.concurrency // ranks), config.rollout.step_timeout
    if others is None:
        return Gym(make, concurrency=places, timeout=timeout)
    return CrewGym(others, agent, make, concurrency=places, timeout=timeout)
