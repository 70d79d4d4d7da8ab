"""Plays by a fixed strategy: look where the object is likely, treat it, deliver it; reads only what an agent reads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from agentgym.errors import EnvError

from .households import CAN_CONTAIN, HOMES, OPENABLE
from .memory import Memory, Wish, kind

_HOMES = {name.lower(): [home.lower() for home in homes] for name, homes in HOMES.items()}
_FITS = {name.lower(): {obj.lower() for obj in objects} for name, objects in CAN_CONTAIN.items()}
_OPENABLE = {name.lower() for name in OPENABLE}
_DEVICES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}


class Expert:
    """Plays one episode; make a new one for the next.

    It decides anew at every turn from what it knows, so it recovers from any detour, its own included: with probability
    `noise` it plays a random admissible command (demonstrations that show how to recover). It reads observations and
    `info["admissible"]`; with `planner` it sees the true state, from `info["engine"]`, and wastes no step on searching.
    """

    def __init__(self, *, seed: int = 0, planner: bool = False, noise: float = 0.0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise EnvError(f"Expert(noise={noise}): noise is a probability, between 0 and 1")
        self.planner = planner
        self.noise = noise
        self.rng = random.Random(seed)
        self.wish: Wish | None = None
        self.memory: Memory | None = None

    def act(self, observation: str, info: dict[str, Any]) -> str:
        """Return the next command; the first observation must be the intro. Raises EnvError where a key is missing."""
        admissible = info.get("admissible")
        if not admissible:
            raise EnvError('the expert needs info["admissible"], the list of admissible commands')
        here = frozenset(a.removeprefix("examine ") for a in admissible if a.startswith("examine "))
        if self.planner:
            if info.get("engine") is None:
                raise EnvError('Expert(planner=True) needs info["engine"], the engine of the game')
            self.wish, self.memory = Memory.of_engine(info["engine"])
        elif self.memory is None:
            self.wish, self.memory = Memory.of_intro(observation)
        else:
            self.memory.read(observation, here & frozenset(self.memory.receptacles))
        assert self.wish is not None
        if self.rng.random() < self.noise:
            return self.rng.choice([a for a in admissible if a != "help"])  # a long text that shows nothing
        return _Turn(self.wish, self.memory, admissible).command()


class _Turn:
    """One decision, from the task, the memory and the admissible commands."""

    def __init__(self, wish: Wish, memory: Memory, admissible: list[str]) -> None:
        self.wish = wish
        self.memory = memory
        self.admissible = admissible
        self.allowed = frozenset(admissible)

    def command(self) -> str:
        """Return the first idea that is admissible now."""
        return next((idea for idea in self.ideas() if idea in self.allowed), self.admissible[0])

    def ideas(self) -> Iterator[str]:
        """Yield commands, the best first; the last ones lead on when the memory is wrong."""
        wish, held = self.wish, self.memory.held
        if held is None:
            yield from self.fetch()
        elif kind(held) != wish.obj:
            yield from self.put_away(held)
        elif wish.treatment and (wish.treatment, held) not in self.memory.treated:
            device = self.nearest(self.memory.of_kind(_DEVICES[wish.treatment]))
            yield from (f"{wish.treatment} {held} with {r}" for r in device)
            yield from (f"go to {r}" for r in device)
        elif wish.what == "look":
            yield from self.light()
        else:
            yield from self.deliver(held)
        yield from self.wander()

    # ---- the stages of a task

    def fetch(self) -> Iterator[str]:
        """Go to an object of the class that is not delivered yet and take it; look for one where none is known."""
        enough = self.targets()[:1] if self.wish.what == "two" else []
        known = [(o, r) for o, r in self.memory.find(self.wish.obj) if r not in enough]
        known.sort(key=lambda pair: self.fetch_cost(pair[1]))
        for obj, recep in known:
            if self.access(recep) is None and f"take {obj} from {recep}" not in self.allowed:
                self.memory.forget(obj, recep)  # seen here once, gone or fixed now
                continue
            yield self.access(recep) or f"take {obj} from {recep}"
        yield from self.search(self.wish.obj)

    def light(self) -> Iterator[str]:
        """Go where a lamp is and use it; look for one where none is known."""
        for lamp, recep in sorted(self.memory.find(self.wish.recep), key=lambda pair: not self.here(pair[1])):
            yield f"use {lamp}" if self.here(recep) else f"go to {recep}"
        yield from self.search(self.wish.recep)

    def deliver(self, held: str) -> Iterator[str]:
        """Take the held object to the target, open it, put the object there."""
        for recep in self.targets():
            if self.access(recep) is None and not self.placing(held, recep):
                continue  # this one does not take it
            yield self.access(recep) or self.placing(held, recep)

    def put_away(self, held: str) -> Iterator[str]:
        """Get rid of an object that nobody asked for, at the nearest receptacle that takes it."""
        places = [r for r in self.memory.receptacles if kind(held) in _FITS.get(kind(r), ())]
        for recep in self.nearest(places):
            yield self.access(recep) or self.placing(held, recep)

    def search(self, wanted: str) -> Iterator[str]:
        """Look into the receptacles not seen yet, by likelihood per command that it costs."""
        if all(r in self.memory.contents for r in self.memory.receptacles):
            self.memory.contents.clear()  # it is somewhere, so something moved: start over
        unseen = [r for r in self.memory.receptacles if r not in self.memory.contents]
        for recep in sorted(unseen, key=lambda r: -self.likelihood(wanted, r) / self.access_cost(r, least=1)):
            yield self.access(recep) or f"examine {recep}"

    def wander(self) -> Iterator[str]:
        """Go anywhere."""
        yield from (command for command in self.admissible if command.startswith("go to "))

    # ---- what they ask about receptacles

    def here(self, recep: str) -> bool:
        """Return whether the receptacle is within reach."""
        return f"examine {recep}" in self.allowed

    def access(self, recep: str) -> str | None:
        """Return the next command on the way to what is in the receptacle, or None when nothing is in the way."""
        if not self.here(recep):
            return f"go to {recep}"
        return f"open {recep}" if f"open {recep}" in self.allowed else None

    def placing(self, obj: str, recep: str) -> str:
        """Return the command that puts the object there, in whichever dialect is spoken, or "" if there is none."""
        commands = (f"move {obj} to {recep}", f"put {obj} in/on {recep}")
        return next((command for command in commands if command in self.allowed), "")

    def shut(self, recep: str) -> bool:
        """Return whether the receptacle is closed, or likely to be."""
        memory = self.memory
        return recep in memory.closed or (recep not in memory.contents and kind(recep) in _OPENABLE)

    def access_cost(self, recep: str, least: int = 0) -> int:
        """Return how many commands it takes until the receptacle can be used."""
        return max(least, (not self.here(recep)) + self.shut(recep))

    def nearest(self, receptacles: list[str]) -> list[str]:
        """Sort receptacles by the commands until they can be used."""
        return sorted(receptacles, key=self.access_cost)

    def targets(self) -> list[str]:
        """Return the receptacles of the target's class, the preferred one first."""
        targets = self.nearest(self.memory.of_kind(self.wish.recep))
        if self.wish.what == "two":  # both must meet in one: where most are, and not now here, now there
            inside = Counter(r for _, r in self.memory.find(self.wish.obj))
            targets.sort(key=lambda r: (-inside[r], inside[r] and self.memory.receptacles.index(r)))
        return targets

    def fetch_cost(self, recep: str) -> int:
        """Return the commands until the object there is in hand, and one more if the next stop is at another place."""
        if self.wish.treatment:
            stops = self.memory.of_kind(_DEVICES[self.wish.treatment])
        elif self.wish.what == "look":
            stops = [r for _, r in self.memory.find(self.wish.recep)]
        else:
            stops = self.targets()
        away = self.memory.together.get(recep, frozenset([recep])).isdisjoint(stops)
        return self.access_cost(recep) + away

    def likelihood(self, wanted: str, recep: str) -> float:
        """Return how likely an object of the class is there: 1/rank of the home, shared by its receptacles."""
        homes = _HOMES.get(wanted, [])
        if kind(recep) in homes:
            return 1 / (homes.index(kind(recep)) + 1) / len(self.memory.of_kind(kind(recep)))
        return 0.02 if wanted in _FITS.get(kind(recep), ()) else 0.001
