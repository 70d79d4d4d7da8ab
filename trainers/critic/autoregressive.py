"""SAPO's critic: the policy itself says what a state and an action are worth, as the difference of two logits that no text needs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from agentgym.errors import ConfigError
from agentgym.renderer import Renderer

from .. import reserve
from ..batch import Batch
from ..chain import Chain, advantages, chain_of_turns
from ..forward import micro_batches, states
from ..ops import is_last
from ..streams import Round
from ._values import explained_variance

Tokens = tuple[str | int, str | int]


class autoregressive:
    """Critic without weights of its own: V, Q = R_max·p, p = clip((z_w+ − z_w−)/τ_v, −1, 1) after the context, after the action.  arXiv 2608.19842

    Two tokens w± are taken out of the language (reserve.py). The policy's own pass trains p, by the objective `value`, once for states and once
    for actions. Targets, d_t = 1 at the end of an episode, cut off by a limit or not (the paper's rule):
    y^V_t = V(s_t) + A_t with A_t = δ_t + γλ(1−d_t)A_{t+1}, δ_t = r_t + γ(1−d_t)V(s_{t+1}) − V(s_t);  y^Q_t = r_t + γ(1−d_t)Q(s_{t+1}, a_{t+1}).
    The paper keeps its constants in a supplement that is not public: all numbers are OURS.

    scale    R_max: the largest return that there is, 10 where solving a task gives 10
    tau      τ_v
    discount, lam  γ and λ; those of the credit `step_gae`
    warmup   rounds in which only w± learn, since p starts arbitrary. OURS: their rows are fitted by least squares to the returns Σ γ^k r of these
             rounds. The value losses alone would move the whole model, as fast as its optimizer can: a small policy was lost in five rounds
    tokens   w+ and w−, as texts or ids; by default two that the tokenizer never uses
    """

    provides = ("value", "next_value", "value_old", "value_target", "value_kind")

    @staticmethod
    def prepare(model: nn.Module, tokenizer: PreTrainedTokenizerFast, *, tau: float = 10.0, tokens: Tokens | None = None, **others: Any) -> None:
        """Take the two tokens out of the model's language; `others` are the options that do not change the model."""
        plus, minus = reserve.choose(model, tokenizer) if tokens is None else (_id(tokenizer, t) for t in tokens)
        reserve.reserve(model, tokenizer, plus, minus, tau)

    def __init__(
        self,
        model: nn.Module,
        renderer: Renderer,
        *,
        scale: float = 10.0,
        tau: float = 10.0,
        discount: float = 0.99,
        lam: float = 0.95,
        warmup: int = 2,
        tokens: Tokens | None = None,
    ) -> None:
        if scale <= 0:
            raise ConfigError(f"critic.scale must be above 0, since values are divided by it; got {scale}")
        self.prepare(model, renderer.tokenizer, tau=tau, tokens=tokens)  # again: once more changes nothing, and nobody can forget it
        if warmup and not reserve.trained(model):
            raise ConfigError(f"critic.warmup={warmup} fits two rows of the output head, which is frozen (adapters): set critic.warmup=0")
        self._sums: dict[str, Tensor] = {}
        self._model, self._scale, self._discount, self._lam, self._warmup = model, scale, discount, lam, warmup

    @torch.no_grad()
    def fill(self, batch: Batch, round: Round) -> dict[str, Tensor]:
        """Return the streams, each [N], from one forward pass.

        value, next_value        V of the context before and with each token, in units of reward
        value_old, value_target  p with each token; y/R_max where value_kind is not 0
        value_kind               1 where a token ends the state of a step, 2 where it ends its action; where a step adds nothing to its context,
                                 both are one token, and it counts as state
        """
        p = self._probe(batch, round)
        value, after = self._scale * torch.where(batch.scored, F.pad(p[:-1], (1, 0)), 0.0), self._scale * p
        chain = chain_of_turns(batch.sampled, batch.step, batch.step_traj)
        state, action = targets(batch, value, after, chain, discount=self._discount, lam=self._lam)
        kind, target = torch.zeros_like(batch.token), torch.zeros_like(p)
        for number, where, y in ((2, chain.last, action), (1, chain.first - 1, state)):
            kind[where], target[where] = number, y / self._scale
        return {"value": value, "next_value": after, "value_old": p, "value_target": target, "value_kind": kind}

    def _probe(self, batch: Batch, round: Round) -> Tensor:
        """Return p [N] of the context that ends with each token."""
        there = batch.to(next(self._model.parameters()).device)
        value, out = reserve.probe(self._model), torch.zeros(batch.n_tokens, device=there.token.device)
        for rows in micro_batches(there, round.budget, share=round.share):
            out[rows.index] = value(states(self._model, rows, rows.at)[0])
        return out.to(batch.token.device)

    def learn(self, batch: Batch, round: Round, generator: torch.Generator) -> dict[str, float]:
        """Return how good the values are, and in the first rounds fit the two rows; afterwards the policy's own pass teaches them.

        explained_variance of V, action_explained_variance of Q, against their targets (left out when these are all equal); value_mean in units
        of reward; clipped, the share of boundaries where p is at −1 or 1.
        """
        have = batch.streams if set(self.provides) <= set(batch.streams) else self.fill(batch, round)
        chain = chain_of_turns(batch.sampled, batch.step, batch.step_traj)
        aims = targets(batch, have["value"], have["next_value"], chain, discount=self._discount, lam=self._lam)
        values = have["value"][chain.first], have["next_value"][chain.last]
        clipped = torch.cat(values).abs() >= self._scale
        out = {"critic/value_mean": float(values[0].mean()), "critic/clipped": float(clipped.float().mean())}
        for name, value, aim in zip(("explained_variance", "action_explained_variance"), values, aims, strict=True):
            found = explained_variance(value, aim)
            out |= {} if found is None else {f"critic/{name}": found}
        if self.warming(round.update):
            self._fit(batch, chain, round)
        else:
            self._sums = {}
        return out

    @torch.no_grad()
    def _fit(self, batch: Batch, chain: Chain, round: Round) -> None:
        """Set the two rows by least squares over this round and those before: p · R_max is to be the return, in states and after actions."""
        blank = torch.zeros(batch.n_tokens)
        returns, _ = targets(batch, blank, blank, chain, discount=self._discount, lam=1.0)
        where = torch.cat([chain.first - 1, chain.last])
        count, aim = (blank.index_add(0, where, x) for x in (torch.ones(len(where)), returns.repeat(2) / self._scale))
        there = batch.to(next(self._model.parameters()).device)
        here = (count > 0).to(there.token.device)
        for rows in micro_batches(there, round.budget, share=round.share):
            own = rows.index[here[rows.index]].cpu()
            n, y = count[own].double(), aim[own].double()
            x = states(self._model, rows, rows.at[here[rows.index]])[0].cpu().double()
            for name, part in (("xx", x.T @ (n[:, None] * x)), ("xy", x.T @ y)):
                self._sums[name] = self._sums[name] + part if name in self._sums else part
        xx = self._sums["xx"]
        reserve.point(self._model, torch.linalg.solve(xx + 1e-3 * xx.diagonal().mean() * torch.eye(len(xx)), self._sums["xy"]))

    def warming(self, update: int) -> bool:
        """Return whether only the values learn in this update."""
        return update < self._warmup

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of the least squares while they are under way; all else that it knows is in the policy's weights."""
        return dict(self._sums)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self._sums = dict(state)


def targets(batch: Batch, value: Tensor, next_value: Tensor, chain: Chain, *, discount: float, lam: float) -> tuple[Tensor, Tensor]:
    """Return ([W] y^V, [W] y^Q) of the turns of `chain`, in units of reward. value, next_value [N] as `fill` gives them."""
    state, action = value.double()[chain.first], next_value.double()[chain.last]
    a = advantages(chain, batch.step_reward, value, next_value, batch.truncated, discount=discount, lam=lam, truncation="terminal")
    after = torch.where(is_last(chain.traj), 0.0, action.roll(-1))
    return (state + a).float(), (chain.collect(batch.step_reward) + discount * after).float()


def _id(tokenizer: PreTrainedTokenizerFast, token: str | int) -> int:
    if isinstance(token, int):
        return token
    found = tokenizer.get_vocab().get(token)
    if found is None:
        raise ConfigError(f"critic.tokens: the tokenizer has no token {token!r}; give the text of a token as its vocabulary has it, or its id")
    return int(found)
