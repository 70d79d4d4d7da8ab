"""The policy's own words seen again with a successful attempt at the same task in view: log-probabilities for `stepopsd`."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Literal

import torch
from torch import Tensor, nn

from agentgym.errors import ConfigError
from agentgym.renderer import Renderer
from agentgym.types import Step, Trajectory

from ..batch import Batch
from ..hindsight import Chat, Context, Hint, Ids, Place, mark, positions, score, token_spans, units
from ..ops import all_equal
from ..streams import Round
from ._stale import Stale

_TEXT = "A successful attempt at this task:"


class peer:
    """Give teacher_logp [N] = log π_T(z_j | prefix ⊕ h) and teacher_mask [N], 1 where it was scored.  StepOPSD, arXiv 2605.27140

    h is the first correct trajectory of the same group, for a correct one the first other; who has none is skipped (OURS). Correct: the
    environment says success. h stands at the end of a user's turn, in front of the template's closing ids (OURS). A peer's prompts that begin a
    segment are left out: they repeat what the student reads itself (OURS). A peer that is too long loses its middle (OURS), and a context that
    has no room for one is skipped. Raises DataError for a prompt that this run's chat template did not make.

    weights  stale: a frozen copy of the policy, renewed every `refresh` updates; live: the policy itself
    hint     peer; none: the student's own context, so that only old and new weights differ
    flag     tell also whether the attempt under way ends in success
    spans    completion: all that was written, but for the end token; action: the text of the action inside it (where it stands last)
    place    turn: h in the last turn before every step, one context a step (METHODS). start: h once, in the first turn of every segment, one
             context a segment. The same where every step is a segment (contexts window, markov). In one segment of S steps "turn" reads half
             the episode and all of h S times: 20 steps in 500 tokens with h as long are 15,000 tokens instead of 1,000. Hence "start"
    mixed    only groups whose outcomes differ: elsewhere GRPO's advantage is 0, whatever weighs it. Set false with credit.base=gigpo
    until    updates after which nothing is scored any more: the credit's `decay`, when its λ is 0. None: never
    max_hindsight  ids that may be inserted; text: what stands in front of the peer
    """

    provides = ("teacher_logp", "teacher_mask")
    shards = True

    def __init__(
        self,
        model: nn.Module,
        renderer: Renderer,
        *,
        weights: Literal["stale", "live"] = "stale",
        refresh: int = 10,
        hint: Literal["peer", "none"] = "peer",
        flag: bool = False,
        spans: Literal["completion", "action"] = "completion",
        place: Place = "start",
        mixed: bool = True,
        until: int | None = None,
        max_hindsight: int = 1024,
        text: str = _TEXT,
    ) -> None:
        if min(refresh, max_hindsight, 1 if until is None else until) < 1:
            raise ConfigError(f"teacher peer: refresh={refresh}, max_hindsight={max_hindsight}, until={until}; all are at least 1")
        if hint == "none" and weights == "live" and not flag:
            raise ConfigError("teacher peer: hint=none with weights=live compares the policy with itself; use weights=stale, flag=true or hint=peer")
        for option, idle in (
            (f"refresh={refresh}", weights == "live" and refresh != 10),
            (f"text={text!r}", hint == "none" and text != _TEXT),
            (f"place={place}", hint == "none" and not flag and place != "start"),
        ):
            if idle:
                raise ConfigError(f"teacher peer: {option} does nothing with weights={weights}, hint={hint}; leave it out")
        self.chat, self.limit = Chat(renderer), positions(model)
        self.teacher = Stale(model, refresh) if weights == "stale" else model
        self.hint, self.flag, self.spans, self.place, self.mixed = hint, flag, spans, place, mixed
        self.until, self.max_hindsight, self.text = until, max_hindsight, text

    def fill(self, batch: Batch, round: Round) -> dict[str, Tensor]:
        """Return the two streams. Where nobody gets a hint there is no forward pass."""
        if self.until is not None and round.update >= self.until:
            return dict(zip(self.provides, torch.zeros(2, batch.n_tokens), strict=True))
        teacher = self.teacher.at(round.update) if isinstance(self.teacher, Stale) else self.teacher
        hints = self._hints(batch, round)
        helped = torch.tensor([h is not None for h in hints])
        wanted = self._spans(batch, round) & helped[batch.step_traj[batch.step]]
        contexts = self._contexts(batch, round, wanted, hints)
        return dict(zip(self.provides, score(teacher, contexts, batch, wanted, round), strict=True))

    def _contexts(self, batch: Batch, round: Round, wanted: Tensor, hints: list[Hint | None]) -> list[Context]:
        token, out = batch.token.tolist(), []
        for unit in units(batch, wanted, self.place):
            hint, room = hints[unit.traj], min(self.max_hindsight, self.limit - (unit.end - unit.start))
            shown = None if hint is None else hint.fit(room, self.chat.gap)
            if shown is None:
                continue
            where = f"teacher peer, task {round.trajectories[unit.traj].task.id!r}, step {int(batch.step_index[unit.step])}"
            at = self.chat.turn(token[unit.opens : unit.answers], where).at if shown else 0
            out.append(Context(unit, unit.opens + at, shown))
        return out

    def _hints(self, batch: Batch, round: Round) -> list[Hint | None]:
        """Return what each trajectory is shown; None: it is left alone."""
        out: list[Hint | None] = [None] * batch.n_trajectories
        groups: dict[int, list[int]] = defaultdict(list)
        told: dict[int, Ids] = {}
        for i, g in enumerate(batch.traj_group.tolist()):
            groups[g].append(i)
        before = self.chat.encode(f"\n{self.text}") if self.text else []
        for members in groups.values():
            correct = [i for i in members if batch.success[i]]
            if self.mixed and all_equal(batch.outcome[members]):
                continue
            for i in members:
                after = self.chat.encode(f"\nThe attempt under way {'succeeds' if batch.success[i] else 'fails'}.") if self.flag else []
                first = next((j for j in correct if j != i), None)
                if self.hint == "none":
                    out[i] = Hint(after=after)
                elif first is not None:
                    told[first] = told.get(first) or self._tell(round.trajectories[first])
                    out[i] = Hint(before, told[first], after)
        return out

    def _tell(self, trajectory: Trajectory) -> Ids:
        """Return a trajectory as one text: what was read as it is, what was written behind `>`."""
        chat, out = self.chat, Ids()
        prompt = chat.encode("\n> ")
        for i, step in enumerate(trajectory.steps):
            if i and not step.new_segment and (read := chat.read(step)):
                out += chat.newline + read
            out += prompt + chat.clean(step.completion.tokens or [])
        return out

    def _spans(self, batch: Batch, round: Round) -> Tensor:
        """Return [N] bool, the tokens of the spans of all steps."""
        inside = batch.sampled & ~self.chat.controls(batch.token)
        if self.spans == "completion":
            return inside
        return inside & mark(batch, round.trajectories, self._action)

    def _action(self, step: Step) -> list[tuple[int, int]]:
        """Return where the action stands last in a completion, with the blanks before it, which a token may hold too."""
        if not step.action:
            return []
        last = re.compile(rf"(?s).*(?<!\s)(\s*{re.escape(step.action)})", re.IGNORECASE)  # a format may have changed the case
        return token_spans(self.chat, step.completion.tokens or [], last, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: the frozen copy, if there is one."""
        return self.teacher.state_dict() if isinstance(self.teacher, Stale) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if isinstance(self.teacher, Stale):
            self.teacher.load_state_dict(state)
