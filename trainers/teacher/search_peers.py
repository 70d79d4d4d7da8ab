"""The policy's own search queries seen again after the searches and results of its whole group: distributions for `sd_search`."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError
from agentgym.renderer import Renderer
from agentgym.types import Step, Trajectory

from ..batch import Batch
from ..hindsight import Chat, Context, Hint, Ids, mark, positions, token_spans, units
from ..streams import Round
from ._union import union


class search_peers:
    """Give teacher_ids [N, K], teacher_logq [N, K] = log P_tch of these ids, teacher_mask [N], 1 on query tokens.  SD-Search, arXiv 2605.18299

    P_tch(p) = π_θ(· | h(G), τ_{<p}) with the policy's own weights, h(G) = {(M(τ_j), y(τ_j))} over the whole group, own rollout included: M keeps
    only the searches, y is CORRECT where the outcome is above `threshold` (ρ), else INCORRECT. h(G) is put into the system message of the first
    prompt of every segment, or is one, so that all of τ comes behind it and stays the very same ids (OURS). K = 2·top_k: the most likely tokens
    of teacher and student before the round (OURS); a place that is not used has teacher_logq −inf. A block that is too long loses its middle, and
    a segment that has no room for one is skipped (OURS). Raises DataError for a prompt that this run's chat template did not make.

    query   regular expression whose one group is a query in a completion's text. A token counts when all of its text is inside: leave the blank
            that words begin with inside too. Tool calls: '"query":\\s*"((?:[^"\\\\]|\\\\.)*)"'. Format plain: '\\Asearch( .+)'
    warmup  updates in which nothing is scored, at no cost (T_warm)
    max_hindsight  ids that may be inserted; text: what stands in front of the block
    """

    provides = ("teacher_ids", "teacher_logq", "teacher_mask")

    def __init__(
        self,
        model: nn.Module,
        renderer: Renderer,
        *,
        top_k: int = 50,
        warmup: int = 50,
        query: str = "<search>(.*?)</search>",
        threshold: float = 0.0,
        max_hindsight: int = 1024,
        text: str = "Searches of several attempts at this task:",
    ) -> None:
        if min(top_k, max_hindsight) < 1 or warmup < 0:
            raise ConfigError(f"teacher search_peers: top_k={top_k}, max_hindsight={max_hindsight}, warmup={warmup}; at least 1, 1 and 0")
        try:
            self.query = re.compile(query, re.DOTALL)
        except re.error as e:
            raise ConfigError(f"teacher search_peers: query={query!r} is no regular expression: {e}") from None
        if self.query.groups != 1:
            raise ConfigError(f"teacher search_peers: query={query!r} has {self.query.groups} groups; one group (…) says what the query is")
        self.model, self.chat = model, Chat(renderer)
        self.limit, self.k = positions(model), min(top_k, len(renderer.tokenizer))
        self.warmup, self.threshold, self.max_hindsight, self.text = warmup, threshold, max_hindsight, text

    def fill(self, batch: Batch, round: Round) -> dict[str, Tensor]:
        """Return the three streams. Without a query there is no forward pass, and K is 1."""
        n = batch.n_tokens
        nothing = torch.zeros(n, 1, dtype=torch.int32), torch.full((n, 1), -torch.inf), torch.zeros(n)
        if round.update < self.warmup:
            return dict(zip(self.provides, nothing, strict=True))
        wanted = mark(batch, round.trajectories, self._queries) & ~self.chat.controls(batch.token)
        contexts = self._contexts(batch, round, wanted)
        if not contexts:
            return dict(zip(self.provides, nothing, strict=True))
        plain = [Context(c.unit, c.unit.start, []) for c in contexts]
        ids, logq = union(self.model, plain, contexts, batch, wanted, self.k, round)
        return dict(zip(self.provides, (ids, logq, (logq > -torch.inf).any(1).float()), strict=True))

    def _contexts(self, batch: Batch, round: Round, wanted: Tensor) -> list[Context]:
        token, out = batch.token.tolist(), []
        groups: dict[int, list[Trajectory]] = defaultdict(list)
        blocks: dict[int, Hint] = {}
        for t, g in zip(round.trajectories, batch.traj_group.tolist(), strict=True):
            groups[g].append(t)
        for unit in units(batch, wanted, "start"):
            group = int(batch.traj_group[unit.traj])
            hint = blocks[group] = blocks.get(group) or self._block(groups[group])
            where = f"teacher search_peers, task {round.trajectories[unit.traj].task.id!r}, step {int(batch.step_index[unit.step])}"
            slot = self.chat.system(token[unit.opens : unit.answers], where)
            room = min(self.max_hindsight, self.limit - (unit.end - unit.start)) - len(slot.before) - len(slot.after)
            shown = hint.fit(room, self.chat.gap)
            if shown is not None:
                out.append(Context(unit, unit.opens + slot.at, [*slot.before, *shown, *slot.after]))
        return out

    def _block(self, group: list[Trajectory]) -> Hint:
        """Return h(G): a line for each rollout with its label, and one for each of its queries."""
        chat, body = self.chat, Ids()
        for number, t in enumerate(group, 1):
            body += chat.encode(f"\n{number}. {'CORRECT' if t.outcome > self.threshold else 'INCORRECT'}")
            for step in t.steps:
                ids = step.completion.tokens or []
                for i, j in self._queries(step):
                    body += chat.encode("\n-") + chat.clean(ids[i:j])
        return Hint(chat.encode(f"\n{self.text}") if self.text else [], body)

    def _queries(self, step: Step) -> list[tuple[int, int]]:
        return token_spans(self.chat, step.completion.tokens or [], self.query, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the teacher is the policy itself."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back nothing."""
