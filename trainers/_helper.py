"""The other side of a crew: a process that plays episodes and computes gradients with weights that lie in shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import traceback
from typing import Any

import torch
from torch import Tensor, nn

from agentgym import registry
from agentgym.config import Config, stages
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym
from agentgym.types import Status, Task, Trajectory

from . import setup
from .forward import MicroBatch, live
from .model import end_ids, trainable
from .streams import Reference
from .update import Updater


def begin(config: Config, local: bytes) -> None:
    """Make a new process ready: names that were registered at run time, threads, and Ctrl-C, which is the main process's affair."""
    registry.add_pickled(local)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(max(1, config.run.threads))


def helper(pipe: Any, config: Config, model: nn.Module, tokenizer: Any, gradient: Tensor, local: bytes) -> None:
    """Entry point of a helper process: serve until the pipe closes."""
    begin(config, local)
    try:
        asyncio.run(_Server(pipe, config, model, tokenizer, gradient).run())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        pipe.send_bytes(pickle.dumps(("error", traceback.format_exc()), protocol=5))


class Players:
    """Who plays in a process of its own: agents and gyms over one model, by the stage's name ("eval": the held-out panel).

    `processes` such ones share the places for environments.
    """

    def __init__(self, config: Config, model: nn.Module, tokenizer: Any, *, processes: int) -> None:
        self.config, self.model, self.processes = config, model, processes
        self.stages = stages(config)
        self.renderer = Renderer(tokenizer, stop_ids=end_ids(model))
        self.policy = setup.make_policy(config.policy, model, self.renderer)
        self._players: dict[str, tuple[Agent, Gym]] = {}

    def of(self, name: str) -> tuple[Agent, Gym]:
        """Return agent and gym, made when they are first asked for; the gym has this process's share of the places."""
        if name not in self._players:
            evaluating = name == "eval"
            c = self.config if evaluating else self.stages[name]
            policy = self.policy if c.policy == self.config.policy else setup.make_policy(c.policy, self.model, self.renderer)
            agent = setup.make_agent(c, policy, self.renderer, evaluating=evaluating)
            self._players[name] = agent, self.gym(c, c.splits.eval if evaluating else c.splits.train)
        return self._players[name]

    def gym(self, config: Config, split: str) -> Gym:
        """Return a gym with this process's share of the places."""
        places = -(-config.rollout.concurrency // self.processes)
        return Gym(setup.make_env(config, split), concurrency=places, timeout=config.rollout.step_timeout)


def broken(task: Task, group: str, error: Exception) -> Trajectory:
    """Return an episode that could not be played, with the reason."""
    text = "".join(traceback.format_exception(error))
    return Trajectory(task, group, status=Status.ERROR, error=f"{type(error).__name__}: {error}", info={"traceback": text})


class _Server:
    """What a helper holds: players by name, and one updater per stage, each made when it is first asked for."""

    def __init__(self, pipe: Any, config: Config, model: nn.Module, tokenizer: Any, gradient: Tensor) -> None:
        self.pipe, self.model, self.gradient = pipe, model, gradient
        self.players = Players(config, model, tokenizer, processes=config.run.workers)
        self.updaters: dict[str, Updater] = {}
        self.params = trainable(model)
        self.tasks: set[asyncio.Task[None]] = set()
        self.reference: Reference  # once it was lent

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        loop.add_reader(self.pipe.fileno(), self._read, inbox)
        while True:
            kind, payload = await inbox.get()
            if kind == "end":
                raise payload
            if kind == "play":
                for job in payload:
                    task = asyncio.create_task(self._play(*job))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
            elif kind == "load":
                self.players.policy.load(None, payload)
            elif kind == "lend":
                self.reference = Reference(self.model, payload)
            elif kind == "score":
                self._reply(self._score(*payload))
            elif kind == "gradient":
                self._reply(self._gradient(*payload))

    def _read(self, inbox: asyncio.Queue[Any]) -> None:
        try:
            inbox.put_nowait(pickle.loads(self.pipe.recv_bytes()))
        except (EOFError, OSError) as e:
            asyncio.get_running_loop().remove_reader(self.pipe.fileno())
            inbox.put_nowait(("end", EOFError() if isinstance(e, OSError) else e))

    def _reply(self, payload: Any) -> None:
        self.pipe.send_bytes(pickle.dumps(("done", payload), protocol=5))

    async def _play(self, ticket: int, name: str, task: Task, group: str, seed: int) -> None:
        try:
            agent, gym = self.players.of(name)
            trajectory = await gym.play(agent, task, group=group, seed=seed)
        except Exception as e:  # always an answer: the other side waits for it
            trajectory = broken(task, group, e)
        self._reply([(ticket, trajectory)])

    def _score(self, reference: bool, work: list[tuple[MicroBatch, Tensor]], options: dict[str, Any]) -> list[dict[str, Tensor]]:
        """Compute this helper's share of log-probabilities."""
        with torch.no_grad(), self.reference.model() if reference else contextlib.nullcontext(self.model) as model:
            return [live(model, rows, wanted, **options) for rows, wanted in work]

    def _gradient(self, stage: str, rows: list[MicroBatch], part: Any, plan: Any) -> Any:
        """Compute this helper's share; the gradient goes into the shared buffer, the measurements are the answer."""
        if stage not in self.updaters:
            self.updaters[stage] = Updater.from_config(self.players.stages[stage], self.model)
        for p in self.params:
            p.grad = None
        meter = self.updaters[stage].backward(part, rows, plan)
        torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in self.params], out=self.gradient)
        return meter
