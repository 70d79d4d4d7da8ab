"""Who sits in which cache slot, who waits for one, and what each has to be fed next. Plain bookkeeping: no tensors."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentgym.types import Completion, Sampling


@dataclass(slots=True, eq=False)
class Row:
    """One turn: `ids` is the context and what has been sampled, `start` where the sampled part begins."""

    episode: str
    seed: int
    ids: list[int]
    start: int
    sampling: Sampling
    future: asyncio.Future[Completion]
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Seat:
    """An episode's slot: the first `length` of `ids` are computed; `row` is the turn in progress."""

    slot: int
    ids: list[int] = field(default_factory=list)
    length: int = 0
    row: Row | None = None
    idle_since: int = 0

    def begin(self, row: Row) -> int:
        """Start a turn and return how many computed positions it keeps: those whose ids still hold."""
        n = self.length
        if self.ids[:n] != row.ids[:n]:
            n = next(i for i, (a, b) in enumerate(zip(self.ids, [*row.ids, -1], strict=False)) if a != b)
        self.length = min(n, len(row.ids) - 1)  # at least one id must be fed: its logits are wanted
        self.ids, self.row = row.ids, row
        return self.length


@dataclass(slots=True)
class Feed:
    """New ids of one row for one forward pass; `row` is None while more of its prompt is to come (nothing to sample yet)."""

    slot: int
    first: int
    ids: list[int]
    row: Row | None


_WORTH = 32  # ids: a shorter beginning is computed again rather than waited for


class Seats:
    """`capacity` slots for any number of episodes; see policy `hf` for `patience`.

    Episodes that begin with the same context, as those of a group do, have it computed once: the first one computes, the others wait for it and
    copy. `copies` lists (from slot, to slot, positions) for the next pass, in the order in which they have to be carried out.
    """

    def __init__(self, capacity: int, patience: int) -> None:
        self.patience = patience
        self.copies: list[tuple[int, int, int]] = []
        self.begun: dict[tuple[int, ...], str] = {}  # a context that an episode began with → the one that computes it
        self.taken: dict[str, Seat] = {}
        self.free = list(range(capacity))  # a heap: low slots first, so that the used ones lie together
        self.waiting: deque[Row] = deque()
        self.tick = 0
        self.prefilled = self.reused = self.evicted = 0

    def rows(self) -> Iterator[Row]:
        """Yield the turns in progress."""
        return (s.row for s in self.taken.values() if s.row is not None)

    def busy(self) -> bool:
        """Return whether any turn is in progress or waiting."""
        return bool(self.waiting) or any(True for _ in self.rows())

    def used(self) -> int:
        """Return one more than the highest slot that is taken."""
        return 1 + max((s.slot for s in self.taken.values()), default=-1)

    def leave(self, seat: Seat) -> None:
        """End a turn; the episode keeps its seat."""
        seat.row, seat.idle_since = None, self.tick

    def release(self, episode: str) -> Row | None:
        """Free an episode's seat and return the turn that was in progress there."""
        seat = self.taken.pop(episode, None)
        if seat is None:
            return None
        heapq.heappush(self.free, seat.slot)
        return seat.row

    def forget(self) -> None:
        """Nothing that was computed holds any longer; the ids are fed again."""
        self.copies.clear()
        for seat in self.taken.values():
            seat.length = 0

    def clear(self) -> list[Row]:
        """End all turns and return them."""
        rows = [*self.waiting, *self.rows()]
        self.waiting.clear()
        for seat in self.taken.values():
            self.leave(seat)
        return rows

    def admit(self) -> None:
        """Begin a tick: drop cancelled turns, then seat those that wait (their own seat, a free one, or one idle for long)."""
        self.tick += 1
        for seat in self.taken.values():
            if seat.row is not None and seat.row.future.done():
                self.leave(seat)
        rows, self.waiting = self.waiting, deque()
        idle: list[tuple[int, str]] | None = None
        for row in rows:
            if row.future.done():
                continue
            own = self.taken.get(row.episode)
            if own is None and not self.free:
                idle = self._idle({r.episode for r in rows}) if idle is None else idle
                if idle:
                    self.release(heapq.heappop(idle)[1])
                    self.evicted += 1
            if (own is not None and own.row is not None) or (own is None and not self.free):
                self.waiting.append(row)
            elif own is not None:
                self.reused += own.begin(row)
            elif not self._begin(row):
                self.waiting.append(row)

    def _begin(self, row: Row) -> bool:
        """Seat the first turn of an episode; False: another one is about to compute the same context, which is worth waiting for."""
        key = tuple(row.ids) if len(row.ids) >= _WORTH else ()
        donor = self.taken.get(self.begun.get(key, ""))
        if donor is not None and donor.ids[: len(key)] == row.ids:
            if donor.length < len(key) - 1 and donor.row is not None:
                return False
            if donor.length >= len(key) - 1:
                seat = self.taken[row.episode] = Seat(heapq.heappop(self.free), row.ids, len(key) - 1)
                self.copies.append((donor.slot, seat.slot, seat.length))
                self.reused += seat.begin(row)
                return True
        if key:
            if len(self.begun) >= 4 * len(self.taken) + 64:  # of episodes that are over
                self.begun = {k: e for k, e in self.begun.items() if e in self.taken}
            self.begun[key] = row.episode
        seat = self.taken[row.episode] = Seat(heapq.heappop(self.free))
        self.reused += seat.begin(row)
        return True

    def _idle(self, wanted: set[str]) -> list[tuple[int, str]]:
        """Return a heap of (idle since, episode) that may lose their seats: at once when nobody is writing, else after a while.

        An episode whose environment answers at once is back in the next tick; taking its seat would cost a whole
        prefill every turn.
        """
        patience = self.patience if any(True for _ in self.rows()) else 0
        idle = [(s.idle_since, e) for e, s in self.taken.items() if s.row is None and e not in wanted and self.tick - s.idle_since >= patience]
        heapq.heapify(idle)
        return idle

    def feeds(self, budget: int) -> list[Feed]:
        """Return what each row has to be fed, shortest first; prompts get at most `budget` ids in all."""
        out: list[Feed] = []
        for seat in self.taken.values():
            row = seat.row
            if row is None:
                continue
            new = row.ids[seat.length :]
            if len(new) > 1 or len(row.ids) == row.start:
                new = new[:budget]
                budget -= len(new)
                self.prefilled += len(new)
                if not new:
                    continue
            first, seat.length = seat.length, seat.length + len(new)
            out.append(Feed(seat.slot, first, new, row if seat.length == len(row.ids) else None))
        out.sort(key=lambda f: (len(f.ids), f.slot))
        return out
