"""The trainer's side of a weight push: what is written down for the engines, how one of them gets it, and the check that it did."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..model import DTYPES
from . import probe, transfer, weights
from .engine import Engine
from .settings import Push
from .thread import LoopThread


@dataclass(frozen=True)
class State:
    """One version of the weights, ready to be pushed.

    label     who:version; engines note it with every token
    weights   file of the base model's parameters (None: they travel from GPU to GPU)
    adapters  folder of LoRA adapters, and their name; None without
    ids       the probe, and
    scores    what the trainer says about it
    """

    label: str
    weights: Path | None
    adapters: Path | None
    adapter: str | None
    ids: list[int]
    scores: list[float]


@dataclass
class Sent:
    """What an engine has: since when it runs, its adapters, both sides' scores after the last push, its GPU transfer."""

    started: object = None
    adapter: str | None = None
    scores: tuple[list[float], list[float]] | None = None
    transfer: Any = None


class Pusher:
    """Pushes one model's weights.

    folder  where files for the engines go; `prepare` and `close` run in the trainer's thread, `bring` in the engines' event loop
    """

    def __init__(self, model: nn.Module, tokenizer: Any, folder: Path, loop: LoopThread, *, push: Push, dtype: str, tolerance: float) -> None:
        self.model, self.tokenizer, self.folder, self.loop = model, tokenizer, folder, loop
        self.push, self.tolerance = push, tolerance
        same = dtype == str(next(model.parameters()).dtype).removeprefix("torch.")
        self._dtype: torch.dtype | None = None if same else DTYPES[dtype]
        self._with_adapters = weights.has_adapters(model)
        self.who = uuid.uuid4().hex[:8]  # another trainer's weights must not pass for ours
        self.state: State | None = None
        self._serial = 0
        self._sent: dict[str, Sent] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.numbers = {"pushes": 0.0, "probe_mean": 0.0, "probe_max": 0.0}

    def prepare(self, version: int) -> None:
        """Write down the present weights; the files stay, for engines that come back, until the next ones are there."""
        self._serial += 1
        old = self.state
        path: Path | None = None
        if self.push == "path":
            keep = old.weights if old and self._with_adapters else None  # the base of adapters never changes
            path = keep or weights.write(self.model, self.folder / f"weights-{self._serial}.safetensors", self._dtype)
        adapters = weights.write_adapters(self.model, self.folder / f"adapters-{self._serial}") if self._with_adapters else None
        ids = old.ids if old else probe.tokens(len(self.tokenizer))
        name = f"{self.who}-{self._serial}" if adapters else None
        self.state = State(f"{self.who}:{version}", path, adapters, name, ids, probe.score(self.model, ids))
        if old and old.weights and old.weights != path:
            old.weights.unlink(missing_ok=True)
        if old and old.adapters:
            shutil.rmtree(old.adapters, ignore_errors=True)

    def version(self, label: str) -> int | None:
        """Return the version that a label of ours stands for; None for one that is not ours."""
        who, _, version = label.partition(":")
        return int(version) if who == self.who else None

    async def bring(self, engine: Engine) -> None:
        """Give one engine the present weights and check that it has them. Raises PolicyError when it has not, EngineLost when it is gone."""
        async with self._locks.setdefault(engine.name, asyncio.Lock()):
            state = None
            while state is not self.state:  # newer ones were written meanwhile
                state = self.state
                assert state is not None
                await self._bring(engine, state)

    async def _bring(self, engine: Engine, state: State) -> None:
        sent = self._sent.setdefault(engine.name, Sent())
        fresh = sent.started is not engine.started
        if fresh:
            sent = self._sent[engine.name] = Sent(engine.started, sent.adapter)
        await engine.pause()
        if fresh or not self._with_adapters:
            if state.weights is not None:
                await engine.load(str(state.weights))
            else:
                await asyncio.to_thread(self._send, engine, sent)
        if state.adapter is not None:
            await engine.adapt(state.adapter, str(state.adapters), sent.adapter)
            sent.adapter = state.adapter
        await engine.resume(state.label)
        theirs = await engine.score(state.ids, state.adapter)
        verdict = probe.compare(state.scores, theirs, tolerance=self.tolerance, who=engine.name, before=sent.scores)
        sent.scores = state.scores, theirs
        self.numbers |= {"pushes": self.numbers["pushes"] + 1, "probe_mean": verdict.mean, "probe_max": verdict.largest}

    def _send(self, engine: Engine, sent: Sent) -> None:
        """Push from GPU to GPU. It blocks and needs the engines' loop meanwhile, so it runs in another thread."""
        call: Callable[[str, dict[str, Any] | None], Any] = lambda method, payload: self.loop.wait(engine.call(method, payload))  # noqa: E731
        if sent.transfer is None:
            sent.transfer = transfer.open_transfer(self.push, self.model, call, http=engine.over_http, dtype=self._dtype)
        sent.transfer.send_weights()

    def close(self) -> None:
        """Remove what was written for the engines."""
        shutil.rmtree(self.folder, ignore_errors=True)
