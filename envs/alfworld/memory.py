"""What a player knows: the task, and the room as far as the texts have told it (or, for the planner, as it is)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentgym.errors import EnvError

from .engine import Engine

# A group `o` is the object's class, `r` the receptacle's (or the lamp), `s` the state asked for.
_TASKS = (
    ("two", r"put two (?P<o>\w+) in (?P<r>\w+)"),
    ("two", r"find two (?P<o>\w+) and put them in (?P<r>\w+)"),
    ("look", r"look at (?:an? )?(?P<o>\w+) under the (?P<r>\w+)"),
    ("look", r"examine (?:the|an?) (?P<o>\w+) with the (?P<r>\w+)"),
    ("put", r"put an? (?P<s>clean|hot|cool) (?P<o>\w+) in (?P<r>\w+)"),
    ("put", r"(?P<s>clean|heat|cool) some (?P<o>\w+) and put it in (?P<r>\w+)"),
    ("put", r"put an? (?P<o>\w+) in (?P<r>\w+)"),
    ("put", r"put some (?P<o>\w+) on (?P<r>\w+)"),
)
_ITEM = re.compile(r"\ban? (\w+ \d+)")
_SEEN = re.compile(r"(?:On the (\w+ \d+)|The (\w+ \d+) is open\. In it), you see ([^.]*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.|You close the (\w+ \d+)\.")
_TAKEN = re.compile(r"You pick up the (\w+ \d+) from the (\w+ \d+)\.")
_PLACED = re.compile(r"You (?:move|put) the (\w+ \d+) (?:to|in/on) the (\w+ \d+)\.")
_TREATED = re.compile(r"You (clean|heat|cool) the (\w+ \d+) using")


def kind(name: str) -> str:
    """Return the class of a thing: "mug" for "mug 1"."""
    return name.rpartition(" ")[0]


@dataclass(frozen=True)
class Wish:
    """The task as read: what to do ("put", "two", "look"), with what class, where, and the treatment it needs first."""

    what: str
    obj: str
    recep: str
    treatment: str = ""  # "clean" | "heat" | "cool"

    @classmethod
    def read(cls, task: str) -> Wish:
        """Read a task sentence of the game files. Raises EnvError on any other sentence."""
        for what, pattern in _TASKS:
            found = re.fullmatch(pattern, task.strip().removesuffix(".").lower())
            if found:
                groups = found.groupdict()
                treatment = groups.get("s", "")
                return cls(what, groups["o"], groups["r"], "heat" if treatment == "hot" else treatment)
        raise EnvError(f"the expert cannot read the task {task!r}; it knows the two sentences of each task type only")


@dataclass
class Memory:
    """The room as known. Names are those of the texts, e.g. "mug 1" and "fridge 1".

    contents   receptacle → objects in it, for every receptacle that was looked into
    closed     receptacles known to be closed
    held       the object in hand, or None
    treated    (treatment, object) pairs that hold now
    together   receptacle → those that can be used from the same place, itself among them
    """

    receptacles: tuple[str, ...]
    contents: dict[str, list[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    held: str | None = None
    treated: set[tuple[str, str]] = field(default_factory=set)
    together: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of_intro(cls, text: str) -> tuple[Wish, Memory]:
        """Return the task and an empty memory of the receptacles that the first observation lists."""
        room = re.search(r"Looking quickly around you, you see (.*?)\.", text, re.DOTALL)
        task = re.search(r"Your task is to: ([^\n]*)", text)
        if room is None or task is None:
            raise EnvError(f"the expert must start from the intro, with its receptacles and its task; got {text!r}")
        return Wish.read(task.group(1)), cls(tuple(_ITEM.findall(room.group(1))))

    @classmethod
    def of_engine(cls, engine: Engine) -> tuple[Wish, Memory]:
        """Return the task and a memory that holds the true state of the game, which the texts may not have told."""
        game = engine.game
        objects, receptacles = game.object_names, game.receptacle_names
        reachable = game.receptacle_index
        treated = {
            (treatment, objects[o]) for treatment, done in (("clean", engine.clean), ("heat", engine.hot), ("cool", engine.cool)) for o in done
        }
        memory = cls(
            tuple(reachable),
            {name: [objects[o] for o in engine.contents[r]] for name, r in reachable.items()},
            {name for name, r in reachable.items() if r in game.openable and r not in engine.opened},
            None if engine.held is None else objects[engine.held],
            treated,
        )
        for at in game.receptacles_at.values():
            names = frozenset(receptacles[r] for r in at)
            memory.together |= dict.fromkeys(names, names)
        return Wish.read(game.task), memory

    def read(self, observation: str, here: frozenset[str]) -> None:
        """Take in what an observation tells, and which receptacles can be used from `here`."""
        self.together |= dict.fromkeys(here, here)
        if found := _CLOSED.search(observation):
            self.closed.add(found.group(1) or found.group(2))
        for found in _SEEN.finditer(observation):
            name = found.group(1) or found.group(2)
            self.contents[name] = _ITEM.findall(found.group(3))
            self.closed.discard(name)
        if found := _TAKEN.search(observation):
            self.held = found.group(1)
            self.forget(*found.groups())
        elif found := _PLACED.search(observation):
            self.held = None
            self.contents.setdefault(found.group(2), []).append(found.group(1))
        elif found := _TREATED.search(observation):
            treatment, name = found.groups()
            self.treated.add((treatment, name))
            self.treated.discard(({"heat": "cool", "cool": "heat"}.get(treatment, ""), name))

    def forget(self, obj: str, recep: str) -> None:
        """Remember no longer that `obj` is in `recep`."""
        self.contents[recep] = [name for name in self.contents.get(recep, []) if name != obj]

    def find(self, wanted: str) -> list[tuple[str, str]]:
        """Return (object, receptacle) for every known object of a class."""
        return [(o, r) for r, objects in self.contents.items() for o in objects if kind(o) == wanted]

    def of_kind(self, wanted: str) -> list[str]:
        """Return the receptacles of a class."""
        return [r for r in self.receptacles if kind(r) == wanted]
