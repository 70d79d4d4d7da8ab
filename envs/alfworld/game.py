"""One ALFWorld game, parsed and immutable: what the engine plays and the planner reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .pddl import GameFileError, Goal, read_json, read_problem, read_task, read_text
from .tables import tables

__all__ = ["Game", "GameFileError", "Goal"]

_DEVICES = {"sinkbasintype": "clean", "microwavetype": "heat", "fridgetype": "cool"}
_NONE: frozenset[int] = frozenset()
_KNIVES = frozenset({"knifetype", "butterknifetype"})


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """An immutable game; everything in lower case, as the real engine has it.

    Objects, receptacles and locations are small ints: positions in the tuples below, which are sorted by id. Sets hold
    the ints. The real engine lists things by id, so whatever is sorted here comes out in its order.

    source             where the game came from, for messages
    task, goal         the task's sentence without its full stop, and what wins
    object_*           ids ("apple_bar__plus_00_dot_12…"), names ("apple 1"), types ({"appletype"}; may be empty), and
                       places: the locations that the file gives, not always those of its receptacle
    receptacle_*       ids, names, types, and the place; None where the file gives none, so that it is never reached
    location_*         ids, names; `start` is where the agent begins
    contents           receptacle → sorted objects in it at the start; an object may be in several
    fits               receptacle → pickupable objects that it may contain
    openable, opened   receptacles
    pickupable … toggleable, portable   objects; `portable` ones hold things (mug, box) that nobody can take out:
    inside             portable object → objects in it, for `examine` alone
    clean … toggled    objects that are so at the start

    Derived: task_type; object_index and receptacle_index (name → number); receptacles_at (location → receptacles);
    devices (receptacle → "clean" | "heat" | "cool" | ""); knives; and what can take part in the goal: target_objects
    (right type, and can get the property), target_receptacles, lamps.
    """

    source: str
    task: str
    goal: Goal
    object_ids: tuple[str, ...]
    object_names: tuple[str, ...]
    object_types: tuple[frozenset[str], ...]
    object_places: tuple[frozenset[int], ...]
    receptacle_ids: tuple[str, ...]
    receptacle_names: tuple[str, ...]
    receptacle_types: tuple[frozenset[str], ...]
    receptacle_places: tuple[int | None, ...]
    location_ids: tuple[str, ...]
    location_names: tuple[str, ...]
    start: int
    contents: tuple[tuple[int, ...], ...]
    fits: tuple[frozenset[int], ...]
    openable: frozenset[int]
    opened: frozenset[int]
    pickupable: frozenset[int]
    cleanable: frozenset[int]
    heatable: frozenset[int]
    coolable: frozenset[int]
    sliceable: frozenset[int]
    toggleable: frozenset[int]
    portable: frozenset[int]
    inside: Mapping[int, tuple[int, ...]]
    clean: frozenset[int]
    hot: frozenset[int]
    cool: frozenset[int]
    sliced: frozenset[int]
    toggled: frozenset[int]
    # Derived from the above when the game is made, so that they cost nothing on disk.
    task_type: str = field(init=False)
    object_index: dict[str, int] = field(init=False, repr=False)
    receptacle_index: dict[str, int] = field(init=False, repr=False)
    receptacles_at: dict[int, tuple[int, ...]] = field(init=False, repr=False)
    devices: tuple[str, ...] = field(init=False, repr=False)
    knives: frozenset[int] = field(init=False, repr=False)
    target_objects: frozenset[int] = field(init=False, repr=False)
    target_receptacles: tuple[int, ...] = field(init=False, repr=False)
    lamps: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Fill the derived fields."""
        at: dict[int, list[int]] = defaultdict(list)
        for r, place in enumerate(self.receptacle_places):
            if place is not None:
                at[place].append(r)
        treatable = {"clean": self.cleanable, "hot": self.heatable, "cool": self.coolable}.get(self.goal.treatment)
        targets = _with_type(self.object_types, self.goal.object_type)
        derived = {
            "task_type": self.goal.task_type,
            "object_index": {name: o for o, name in enumerate(self.object_names)},
            "receptacle_index": {self.receptacle_names[r]: r for r, p in enumerate(self.receptacle_places) if p is not None},
            "receptacles_at": {place: tuple(rs) for place, rs in at.items()},
            "devices": tuple("".join(_DEVICES[t] for t in types & _DEVICES.keys()) for types in self.receptacle_types),
            "knives": frozenset(o for o, types in enumerate(self.object_types) if types & _KNIVES),
            "target_objects": frozenset(targets if treatable is None else treatable.intersection(targets)),
            "target_receptacles": tuple(_with_type(self.receptacle_types, self.goal.receptacle_type)),
            "lamps": self.toggleable.intersection(_with_type(self.object_types, self.goal.lamp_type)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def treatable(self, r: int) -> frozenset[int]:
        """Return the objects that receptacle `r` can clean, heat or cool; none where it is no device."""
        return {"clean": self.cleanable, "heat": self.heatable, "cool": self.coolable}.get(self.devices[r], _NONE)

    def __reduce__(self) -> tuple[type[Game], tuple[Any, ...]]:
        return Game, tuple(getattr(self, f.name) for f in fields(self) if f.init)

    @classmethod
    def load(cls, path: str | Path) -> Game:
        """Read a `game.tw-pddl` file. Raises GameFileError that names it."""
        return cls.parse(read_text(path), source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str = "<text>") -> Game:
        """Read the text of a `game.tw-pddl` file, old format or new. Raises GameFileError that names `source`."""
        return cls.from_data(read_json(text, source), source=source)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, source: str) -> Game:
        """Make a game of what `read_json` returned."""
        facts, goal = read_problem(data["pddl_problem"], source)
        return cls(source=source, task=read_task(data["grammar"], source), goal=goal, **tables(facts, source))


def _with_type(types: Iterable[frozenset[str]], wanted: str) -> Iterator[int]:
    return (i for i, held in enumerate(types) if wanted in held)
