"""A value head on its own copy of the policy's backbone, with its own optimizer: PPO's critic, and SAO's with most of it frozen."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError
from agentgym.renderer import Renderer

from ..batch import Batch
from ..chain import Truncation, advantages, chain_of_tokens
from ..forward import MicroBatch, micro_batches
from ..optimizer.adamw import adamw
from ..streams import Round
from ..update import Schedule, split
from ._net import Freeze, Net, mlps
from ._values import explained_variance


class head:
    """Critic V(context) = scale · w·h, h the last hidden state of a copy of the backbone, w zero at first.  PPO arXiv 1707.06347, SAO 2607.07508

    The copy is made at the first use, so that it starts where the policy stands when its stage begins (SAO: from the same supervised model).

    lr         of its AdamW, after `lr_warmup` optimiser steps of linear warm-up. SAO: 5e-6 and 10, at a policy's 1e-6; GiGPO's PPO: 1e-5
    freeze     what stays as it was copied: "none"; "attention", where only the MLPs learn, as in SAO; "backbone", where only the head learns
    updates    passes over the batch per round, of `minibatches` optimiser steps each; SAO: 2
    warmup     rounds in which only the critic learns. OURS: SAO pre-trains it on 6k samples instead
    clip       ε of the loss ½·max((V−y)², (V_old + clip(V−V_old, ±ε)−y)²), in units of `scale`; 0 = no clipping
    scale      size of the rewards, such as 10 where solving a task gives 10
    discount, lam  γ and λ of the targets y = V_old + GAE(γ, λ) over written tokens, penalties included. λ = 1: Monte-Carlo returns (SAO's λ_critic)
    truncation  what comes after an episode that a limit cut off: V of its end ("bootstrap") or 0 ("terminal"), as in the credits gae, skip_gae
    clip_norm  largest norm of its gradient
    """

    provides = ("value", "next_value")

    def __init__(
        self,
        model: nn.Module,
        renderer: Renderer,
        *,
        lr: float = 1e-4,
        freeze: Freeze = "none",
        updates: int = 2,
        minibatches: int = 1,
        warmup: int = 0,
        clip: float = 0.2,
        scale: float = 1.0,
        discount: float = 1.0,
        lam: float = 1.0,
        truncation: Truncation = "bootstrap",
        lr_warmup: int = 0,
        clip_norm: float = 1.0,
    ) -> None:
        if scale <= 0 or updates < 1 or minibatches < 1:
            found = f"{scale}, {updates} and {minibatches}"
            raise ConfigError(f"critic.scale must be above 0, critic.updates and critic.minibatches at least 1; got {found}")
        if freeze == "attention" and not mlps(model):
            raise ConfigError(f"critic.freeze=attention: no parameter of {type(model).__name__} is called an MLP's; use none or backbone")
        self._model, self._freeze, self._lr = model, freeze, lr
        self._updates, self._minibatches, self._warmup, self._schedule = updates, minibatches, warmup, Schedule(lr_warmup)
        self._clip, self._scale, self._clip_norm = clip or math.inf, scale, clip_norm
        self._advantages = partial(advantages, discount=discount, lam=lam, truncation=truncation)
        self._net: Net | None = None
        self._steps = 0

    @property
    def net(self) -> Net:
        """The copy of the backbone with its head; made at the first use."""
        if self._net is None:
            self._net = Net(self._model, self._freeze)
            self._optimizer = adamw(self._net.named_parameters(), lr=self._lr)
        return self._net

    @torch.no_grad()
    def fill(self, batch: Batch, round: Round) -> dict[str, Tensor]:
        """Return value [N], V of the context that each token was written in (0 at the first of a segment), and next_value [N], with the token."""
        there = batch.to(self.net.device)
        value, after = torch.zeros(2, batch.n_tokens, device=self.net.device)
        for rows in micro_batches(there, round.budget, share=round.share):
            v = self._scale * self.net.of(rows)[rows.at]
            value[rows.index], after[rows.index] = torch.where(rows.first, 0.0, v.roll(1)), v
        return {"value": value.to(batch.token.device), "next_value": after.to(batch.token.device)}

    def learn(self, batch: Batch, round: Round, generator: torch.Generator) -> dict[str, float]:
        """Take the round's optimiser steps; return the loss and the gradient's norm (means over them), and how good the values were before.

        explained_variance = 1 − Var(y − V_old) / Var(y) over written tokens; it is left out when all targets are equal.
        """
        have = batch.streams if set(self.provides) <= set(batch.streams) else self.fill(batch, round)
        value, written = have["value"], batch.sampled & batch.scored
        target = self._target(batch, value, have["next_value"])
        there = replace(batch, streams={"old": value / self._scale, "target": target / self._scale}).to(self.net.device)
        parts = [part for _ in range(self._updates) for part in split(batch, self._minibatches, generator)]
        steps = [self._step(there.select(part), round) for part in parts]
        loss, norm = (sum(x) / len(steps) for x in zip(*steps, strict=True))
        out = {"critic/loss": loss, "critic/grad_norm": norm, "critic/value_mean": float(value[written].mean())}
        found = explained_variance(value[written], target[written])
        return out if found is None else out | {"critic/explained_variance": found}

    def _target(self, batch: Batch, value: Tensor, next_value: Tensor) -> Tensor:
        """Return [N] y on written tokens, 0 elsewhere."""
        chain = chain_of_tokens(batch.sampled, batch.step, batch.step_traj)
        reward = batch.step_reward + batch.step_penalty
        a = self._advantages(chain, reward, value, next_value, batch.truncated)
        return chain.tokens(value[chain.first] + a, batch.n_tokens)

    def _step(self, batch: Batch, round: Round) -> tuple[float, float]:
        """Take one optimiser step over a batch; return the loss and the gradient's norm before clipping."""
        self._optimizer.zero_grad()
        loss = self.backward(batch, round.budget, share=round.share)
        norm = float(nn.utils.clip_grad_norm_(self.net.parameters(), self._clip_norm))
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * self._schedule(self._steps)
        if math.isfinite(norm):
            self._optimizer.step()
            self._steps += 1
        return loss, norm

    def backward(self, batch: Batch, budget: int, *, share: bool = False) -> float:
        """Add the gradient of the mean loss over the written tokens of a batch, and return that loss, in units of scale².

        The batch has the streams old and target [N], in units of scale. Each micro-batch is divided by the count of the whole batch, so that
        its size, `budget` tokens with padding, changes nothing, nor does `share`: what segments begin with in common is computed once.
        """
        count = int((batch.sampled & batch.scored).sum())
        loss = 0.0
        for rows in micro_batches(batch, budget, share=share):
            part = self._loss(batch, rows) / count
            part.backward()
            loss += float(part.detach())
        return loss

    def _loss(self, batch: Batch, rows: MicroBatch) -> Tensor:
        """Return the sum of the losses of the written tokens of a micro-batch."""
        written = (batch.sampled & batch.scored)[rows.index]
        i, v = rows.index[written], self.net.of(rows)[rows.at[written.nonzero()[:, 0] - 1]]
        old, target = batch.streams["old"][i], batch.streams["target"][i]
        near = old + (v - old).clamp(-self._clip, self._clip)
        return 0.5 * torch.maximum((v - target).square(), (near - target).square()).sum()

    def warming(self, update: int) -> bool:
        """Return whether only the critic learns in this update."""
        return update < self._warmup

    def state_dict(self) -> dict[str, Any]:
        """Return the backbone, the head, the optimizer and the number of its steps."""
        return {"net": self.net.state_dict(), "optimizer": self._optimizer.state_dict(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.net.load_state_dict(state["net"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._steps = state["steps"]
