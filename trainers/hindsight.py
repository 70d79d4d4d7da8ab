"""Teacher contexts: the student's own ids with hindsight in front of some of them.

Hindsight is made of ids that the run has stored (what peers read and wrote) and of short fixed texts. What the policy sampled is never
encoded again: a teacher scores the very ids that the student wrote, and only other ids come before them. Where the ids of hindsight go is
found from the chat template itself (`Chat`); `units` and `rectangles` make forward passes of it, bounded like all others.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from agentgym.errors import DataError, PolicyError
from agentgym.renderer import Renderer
from agentgym.types import Message, Step, Trajectory

from .batch import Batch
from .forward import MicroBatch, device_of, joined, live, micro_batches, mine
from .streams import Round

Place = Literal["turn", "start"]
Ids = list[int]
# Contents that share neither their first nor their last token, whatever the tokenizer; the empty one shows where fixed ids end.
_CONTENTS = ("", "a", "7?")
_LEAST = 8  # ids of a peer that are still worth showing


class Slot(NamedTuple):
    """A place in a prompt: in front of its id `at`; `before` and `after` are template ids that must surround what is put there."""

    at: int
    before: Ids
    after: Ids


@dataclass
class Hint:
    """Ids to show: `body` comes from peers and may be cut in its middle, the rest is fixed."""

    before: Ids = field(default_factory=list)
    body: Ids = field(default_factory=list)
    after: Ids = field(default_factory=list)

    def fit(self, room: int, gap: Ids) -> Ids | None:
        """Return at most `room` ids, the middle of the body replaced by `gap` where it is too long; None when too little would be left."""
        keep = room - len(self.before) - len(self.after)
        body = self.body
        if keep < len(body):
            keep -= len(gap)
            if keep < _LEAST:
                return None
            body = [*body[: (keep + 1) // 2], *gap, *body[len(body) - keep // 2 :]]
        return [*self.before, *body, *self.after] if keep >= 0 else None


class Chat:
    """What a chat template puts around contents, as ids, found by rendering contents that have no id in common.

    control  ids that structure a chat: none of them may come out of a peer's turn into another one's
    newline  ids of a line break; gap: of the mark for what was left out
    tail     ids between a user's message and the assistant's next one
    """

    def __init__(self, renderer: Renderer) -> None:
        self.tokenizer: Any = renderer.tokenizer
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        self.control = renderer.stop_ids | set(self.tokenizer.all_special_ids) | {i for i, t in added.items() if t.special}
        self.newline, self.gap = self.encode("\n"), self.encode("\n...\n")
        user = self._renderings(lambda c: renderer.render([Message("user", c)]))
        self.user_head, self.tail = _shared(user), _shared(user, end=True)
        later = [self._renderings(lambda c, e=e: renderer.extend([Message("user", c)], ended=e)) for e in (True, False)]  # type: ignore[misc]
        self._bridges = [_shared(ids) for ids in later]
        self.system_head, self.between = self._system(renderer)

    def encode(self, text: str) -> Ids:
        """Return the ids of a fixed text; it cannot open or end a turn."""
        return [i for i in self.tokenizer.encode(text, add_special_tokens=False) if i not in self.control]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens, nothing tidied: that of a longer list begins with that of a shorter one."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def clean(self, ids: Sequence[int]) -> Ids:
        """Return ids without control ids: a run of them becomes a line break, and none is left at either end."""
        out: Ids = []
        broken = False
        for i in ids:
            if i in self.control:
                broken = True
                continue
            out += self.newline if broken and out else []
            out.append(i)
            broken = False
        return out

    def controls(self, token: Tensor) -> Tensor:
        """Return [N] bool: which ids structure a chat."""
        return torch.isin(token, torch.tensor(sorted(self.control), device=token.device))

    def read(self, step: Step) -> Ids:
        """Return what a later prompt of a segment told, without the template's ids around it."""
        ids = step.prompt
        start = max(self._match(ids, head) or 0 for head in self._bridges)
        return self.clean(ids[start : len(ids) - (self._match(ids, self.tail, end=True) or 0)])

    def turn(self, prompt: Ids, where: str) -> Slot:
        """Return the end of a prompt's last message. Raises DataError when the prompt does not end as the template ends one."""
        found = self._match(prompt, self.tail, end=True)
        if found is None:
            raise DataError(
                f"{where}: the prompt does not end with the ids that the chat template puts between a user's message and the assistant's, "
                f"{self.tail}; it ends with {prompt[-len(self.tail) - 2 :]}. Hindsight needs prompts that this run's tokenizer and template made"
            )
        return Slot(len(prompt) - found, [], [])

    def system(self, prompt: Ids, where: str) -> Slot:
        """Return the system-side place of a whole prompt: the end of its system message, or a system message of its own in front of the user's.

        A template that knows no system message has the start of the user's instead. Raises DataError when the prompt begins otherwise.
        """
        user, system, between = self.user_head, self.system_head, self.between
        plain, own = self._match(prompt, user), self._match(prompt, system)
        nested = user[: len(system)] == system
        if plain is not None and nested and between and _ends(user, between):  # the template writes a system message when it is given none
            return Slot(len(user) - len(between), [], [])
        if system and between and own is not None and (plain is None or not nested):
            at = next((i for i in range(len(system), len(prompt)) if prompt[i : i + len(between)] == between), None)
            if at is not None:
                return Slot(at, [], [])
        if plain is None:
            raise DataError(
                f"{where}: the prompt begins neither with a system message nor with a user's as the chat template writes them "
                f"({system} or {user}); it begins with {prompt[:12]}. Hindsight needs prompts that this run's tokenizer and template made"
            )
        for lead in range(_common(system, user) + 1 if system else 0):  # the ids that come before any message, such as a BOS
            if _ends(between, user[lead:]):
                return Slot(lead, system[lead:], between[: len(between) - len(user) + lead])
        return Slot(plain, [], self.newline)

    def _system(self, renderer: Renderer) -> tuple[Ids, Ids]:
        """Return the ids in front of a system message and those between it and a user's; empty where the template refuses one."""
        try:
            upto = [
                _shared(self._renderings(lambda u, s=s: renderer.render([Message("system", s), Message("user", u)])))  # type: ignore[misc]
                for s in _CONTENTS[1:]
            ]
            bare = _shared(self._renderings(lambda s: renderer.render([Message("system", s), Message("user", "a")])))
        except PolicyError:
            return [], []
        return bare, _shared(upto, end=True)

    def _renderings(self, render: Callable[[str], Ids]) -> list[Ids]:
        """Return the renderings of several contents; one whose turn the template leaves out is not among them."""
        found = [render(c) for c in _CONTENTS]
        marks = [[i for i in ids if i in self.control] for ids in found]
        return [ids for ids, m in zip(found, marks, strict=True) if m == marks[-1]]

    def _match(self, ids: Ids, fixed: Ids, *, end: bool = False) -> int | None:
        """Return how many ids of `fixed` stand at the start (or end) of `ids`: all, or all but blanks that grew together with the content."""
        n = _common(ids, fixed, end=end)
        missing = fixed[: len(fixed) - n] if end else fixed[n:]
        blank = not self.control & set(missing) and not self.decode(missing).strip()
        return n if not missing or (n and blank) else None


def _common(a: Sequence[int], b: Sequence[int], *, end: bool = False) -> int:
    """Return how many ids two lists share at their start, or at their end."""
    pairs = zip(reversed(a), reversed(b), strict=False) if end else zip(a, b, strict=False)
    n = 0
    for x, y in pairs:
        if x != y:
            break
        n += 1
    return n


def _shared(lists: Sequence[Ids], *, end: bool = False) -> Ids:
    n = min(_common(lists[0], x, end=end) for x in lists)
    return lists[0][len(lists[0]) - n :] if end else lists[0][:n]


def _ends(ids: Ids, tail: Ids) -> bool:
    return len(tail) <= len(ids) and ids[len(ids) - len(tail) :] == tail


def token_spans(chat: Chat, ids: Sequence[int], pattern: re.Pattern[str], group: int = 0) -> list[tuple[int, int]]:
    """Return (first, past the last) of the ids whose text lies wholly inside `group` of a match of `pattern`, for each match.

    An id that holds a part of what is around the group is outside. Borders are found by bisection over the lengths of decoded beginnings,
    which is exact for any tokenizer.
    """
    text = chat.decode(ids)
    length: Callable[[int], int] = lambda n: len(chat.decode(ids[:n]))  # noqa: E731
    every = range(len(ids) + 1)
    found = [m.span(group) for m in pattern.finditer(text)]
    spans = [(bisect.bisect_left(every, a, key=length), bisect.bisect_right(every, b, key=length) - 1) for a, b in found]
    return [(i, j) for i, j in spans if i < j]


def mark(batch: Batch, trajectories: Sequence[Trajectory], spans: Callable[[Step], list[tuple[int, int]]]) -> Tensor:
    """Return [N] bool: the tokens of the spans (first, past the last) inside the completion of each step; `trajectories` are the batch's."""
    out = torch.zeros(batch.n_tokens, dtype=torch.bool)
    ends = torch.bincount(batch.step, minlength=batch.n_steps).cumsum(0).tolist()
    for end, step in zip(ends, (s for t in trajectories for s in t.steps), strict=True):
        written = end - len(step.completion.tokens or ())
        for i, j in spans(step):
            out[written + i : written + j] = True
    return out


class Unit(NamedTuple):
    """What one context scores: tokens `answers` ≤ n < `end` of the flat batch, behind the prompt that begins at token `opens`."""

    start: int  # of the segment
    opens: int
    answers: int
    end: int
    step: int
    traj: int


def units(batch: Batch, wanted: Tensor, place: Place) -> list[Unit]:
    """Return the contexts that `wanted` [N] bool needs: one per step ("turn") or one per segment ("start"), none without a wanted token."""
    of = batch.step if place == "turn" else batch.segment
    index = wanted.nonzero()[:, 0]
    which, count = torch.unique_consecutive(of[index], return_counts=True)
    size = torch.bincount(of)
    opens = (size.cumsum(0) - size)[which]
    step = batch.step[opens]
    read = torch.bincount(batch.step[~batch.sampled], minlength=batch.n_steps)
    last = index[count.cumsum(0) - 1]
    columns = (opens - batch.position[opens], opens, opens + read[step], last + 1, step, batch.step_traj[step])
    return [Unit(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


@dataclass(frozen=True)
class Context:
    """The tokens of a unit's segment up to the unit's end, with `inserted` ids in front of token `cut` of the flat batch."""

    unit: Unit
    cut: int
    inserted: Ids


@dataclass
class _Flat:
    """Contexts one after the other; what rows_of reads of a batch."""

    token: Tensor
    segment: Tensor


def rectangles(
    contexts: Sequence[Context], batch: Batch, wanted: Tensor, budget: int, device: torch.device, *, share: bool = False
) -> Iterator[tuple[MicroBatch, Tensor, Tensor]]:
    """Yield (rows, source, scored), on `device`: source [M] is the batch's index of each of the rows' tokens (-1: inserted), scored [M] bool.

    share  whether what contexts begin with in common is computed once: then the rows are a tree, where that pays
    """
    source = [x for c in contexts for x in (torch.arange(c.unit.start, c.cut), torch.full((len(c.inserted),), -1), torch.arange(c.cut, c.unit.end))]
    if not contexts:
        return
    length = torch.tensor([c.unit.end - c.unit.start + len(c.inserted) for c in contexts])
    segment = torch.arange(len(contexts)).repeat_interleave(length)
    where = torch.cat(source)
    token = batch.token.cpu()[where.clamp(min=0)]
    token[where < 0] = torch.tensor([i for c in contexts for i in c.inserted], dtype=token.dtype)
    answers = torch.tensor([c.unit.answers for c in contexts])[segment]
    scored = (where >= answers) & wanted.cpu()[where.clamp(min=0)]
    flat = _Flat(token.to(device), segment.to(device))
    where, scored = where.to(device), scored.to(device)
    for rows in micro_batches(flat, budget, share=share):
        yield rows, where[rows.index], scored[rows.index]


@torch.no_grad()
def score(model: nn.Module, contexts: Sequence[Context], batch: Batch, wanted: Tensor, round: Round) -> tuple[Tensor, Tensor]:
    """Return (log-probability [N] of the wanted tokens in their contexts, 0 elsewhere; mask [N], 1 where one was scored), on the CPU."""
    logp, mask = torch.zeros(2, batch.n_tokens)
    work = rectangles(contexts, batch, wanted, round.budget, device_of(model), share=round.share)
    for rows, source, scored in mine(model, work, lambda x: x[0].cells):
        found = live(model, rows, scored, temperature=round.temperature)["logp"]
        logp[source[scored].cpu()] = found[scored].cpu()
        mask[source[scored].cpu()] = 1.0
    logp, mask = joined(model, logp, mask)
    return logp, mask


def positions(model: nn.Module) -> int:
    """Return how many tokens the model can read at once."""
    return int(getattr(getattr(model, "config", None), "max_position_embeddings", 0) or 1_000_000)
