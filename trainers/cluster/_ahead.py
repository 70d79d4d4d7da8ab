"""Asynchronous rollouts in the engines of a cluster: the admission and the bounds are those of ahead.py, only the way there is another.

Finished groups that nobody has learnt from are bounded as there, (max_staleness + 1) times the groups of an update with those under way: an engine
that is ahead of its trainer gets nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentgym.types import Task

from .._seat import Job
from ..ahead import Ahead
from ._compact import expand
from ._fleet import Fleet


class FleetSeat:
    """An engine, as admission sees it: what it plays, and how to send it more. The fleet looks after its life."""

    def __init__(self, fleet: Fleet, stage: str, index: int, deaths: int) -> None:
        self.index, self.deaths, self.jobs = index, deaths, dict[int, Job]()
        self.reason = ""
        self._fleet, self._stage = fleet, stage

    def send(self, kind: str, payload: Any) -> None:
        """Send groups to play, or the end of the stage."""
        if kind == "play":
            self._fleet.tell(self.index, "play_groups", self._fleet.edition, self._stage, payload)
        elif kind == "end":
            self._fleet.tell(self.index, "drop_groups")

    def close(self) -> None:
        """Nothing to wait for."""

    def epitaph(self) -> str:
        """Return what became of the engine."""
        return self.reason


class FleetAhead(Ahead):
    """Like Ahead, with the engines of a cluster."""

    anywhere = True

    def __init__(self, fleet: Fleet, config: Any, stage: str, model: Any, tokenizer: Any, take: Callable[[int], Sequence[Task]], *, say: Any) -> None:
        super().__init__(config, stage, model, tokenizer, take, say=say)
        self._fleet = fleet

    def start(self, version: int) -> None:
        """Begin: the engines have the weights already."""
        self.version = version
        self._fleet.listener = self._hear
        self._seats = [self._seat(i) for i in range(self._fleet.n)]
        self._admit()

    def publish(self, version: int) -> None:
        """Go on after an update, whose weights are on their way, and admit new groups."""
        self._receive()
        self.version, self._learning = version, 0
        self._drop_stale()
        self._admit()

    def close(self) -> None:
        """Give up what is under way. Calling it twice is allowed."""
        super().close()
        if self._fleet.listener == self._hear:
            self._fleet.listener = None

    def _seat(self, index: int, deaths: int = 0) -> Any:
        return FleetSeat(self._fleet, self.stage, index, deaths)

    def _hear(self, index: int, kind: str, payload: Any) -> None:
        """Take an event; in the fleet's thread."""
        seat = self._seats[index] if self._seats else None
        self._deliver(seat, (kind, payload))  # type: ignore[arg-type]

    def _receive(self) -> None:
        while not self._inbox.empty():
            event: Any = self._inbox.get_nowait()
            seat, (kind, payload) = event
            if kind == "failed":
                raise payload
            if seat in self._seats:
                self._take_event(seat, kind, payload)
        self._drop_stale()

    def _take_event(self, seat: Any, kind: str, payload: Any) -> None:
        if kind == "lost":
            seat.reason = payload
            self._died(seat)
            return
        number, data = payload
        if number not in seat.jobs:  # played twice: it was sent to an engine just when that was lost
            return
        if kind == "group":
            job = seat.jobs[number]
            self._take_in(seat, kind, (number, expand(data, [job.task] * self._size)))
        else:
            self._take_in(seat, kind, number)

    def _look(self) -> None:
        """See whether the engines can go on; who has said nothing is the fleet's affair."""
        self._fleet.check()
