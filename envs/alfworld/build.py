"""Builds one household around a goal: the layout, then the objects, so that the goal can be met and is not met yet."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence

from agentgym.errors import DataError

from .households import (
    ABILITIES,
    ALWAYS_OPENABLE,
    CAN_CONTAIN,
    HOLDS_ONE,
    HOMES,
    LAMP,
    OPENABLE,
    Room,
    Size,
)
from .problem import STATES, Goal, Household, Item, Receptacle

_TOOL = {"cleanable": "SinkBasin", "heatable": "Microwave", "coolable": "Fridge"}
_TRIES = 2000


def build(rng: random.Random, goal: Goal, room: Room, size: Size, *, scene: int, accept: Callable[[Counter[str]], bool]) -> Household:
    """Draw a household for `goal` whose layout (receptacles of each class) `accept` takes.

    The goal must be feasible in this room and size. Raises DataError when no layout is accepted.
    """
    layout = next((drawn for _ in range(_TRIES) if accept(drawn := _layout(rng, goal, room, size))), None)
    if layout is None:
        raise DataError(f"no layout for {goal} was accepted in {_TRIES} draws: give the room more receptacles")
    start, *cells = _cells(rng, layout.total() + 1)
    receptacles = _receptacles(rng, layout, cells, size)
    items = _items(rng, goal, room, size, receptacles)
    return Household(goal, goal.sentence(rng.randrange(2)), scene, receptacles, items, _place(rng, *start))


def layout_tenth(layout: Counter[str]) -> int:
    """Return a number from 0 to 9 that depends only on how many receptacles of each class there are."""
    text = " ".join(f"{name}={count}" for name, count in sorted(layout.items()) if count)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 10


def feasible(goal: Goal, room: Room, size: Size) -> bool:
    """Return whether the goal makes sense here: its things occur in the room, the object fits, can start elsewhere."""
    objects = _objects(room, size)
    if goal.obj == LAMP or goal.obj not in objects:
        return False
    if goal.recep == LAMP:
        return LAMP in objects
    tool = _tool(goal)
    able = tool is None or (goal.obj in ABILITIES[STATES[goal.task_type][0]] and tool != goal.recep)
    fits = goal.obj in CAN_CONTAIN[goal.recep] and not (goal.recep in HOLDS_ONE and _two(goal))
    there = all(_most(name, room, size) for name in (goal.recep, tool) if name)
    return able and fits and there and bool(_starts(goal, room, size))


def _tool(goal: Goal) -> str | None:
    """Return the receptacle that gives the object the state which the goal asks for, if it asks for one."""
    return _TOOL[STATES[goal.task_type][0]] if goal.task_type in STATES else None


def _starts(goal: Goal, room: Room, size: Size) -> list[str]:
    """Return the receptacles where the object may start: never in the target, where the goal might be met already."""
    taken = HOLDS_ONE if _two(goal) else frozenset()  # two objects need room for two
    return [name for name in _homes(goal.obj, room, size) if name != goal.recep and name not in taken]


def _two(goal: Goal) -> bool:
    return goal.task_type == "pick_two_obj_and_place"


def _homes(obj: str, room: Room, size: Size) -> list[str]:
    return [name for name in HOMES[obj] if _most(name, room, size)]


def _objects(room: Room, size: Size) -> list[str]:
    return [name for name in room.objects if size.vocabulary is None or name in size.vocabulary]


def _most(recep: str, room: Room, size: Size) -> int:
    """Return how many receptacles of this class a household may have."""
    known = size.vocabulary is None or recep in size.vocabulary
    return min(room.most.get(recep, 0), size.most_of_a_kind) if known else 0


def _likely(rng: random.Random, names: Sequence[str]) -> str:
    """Draw from names in the order of their likelihood: the k-th has weight 1/k."""
    return rng.choices(names, weights=[1 / k for k in range(1, len(names) + 1)])[0]


def _layout(rng: random.Random, goal: Goal, room: Room, size: Size) -> Counter[str]:
    """Draw how many receptacles of each class there are: what the goal needs, then more until the size is met."""
    needs = {name for name in room.always if _most(name, room, size)}
    needs.add(_likely(rng, _starts(goal, room, size)))
    needs.add(_likely(rng, _homes(LAMP, room, size)) if goal.recep == LAMP else goal.recep)
    needs.update(filter(None, [_tool(goal)]))
    layout = Counter({name: 1 for name in room.most if name in needs})  # in the table's order, not the set's
    free = {name: _most(name, room, size) - layout[name] for name in room.most}
    total = min(rng.randint(*size.receptacles), layout.total() + sum(free.values()))
    while layout.total() < total:
        name = rng.choices(list(free), weights=list(free.values()))[0]
        layout[name] += 1
        free[name] -= 1
    return layout


def _cells(rng: random.Random, n: int) -> list[tuple[int, int]]:
    """Draw distinct cells of the room's grid of 25 by 25, a quarter of a metre each."""
    return [(cell % 25 - 12, cell // 25 - 12) for cell in rng.sample(range(25 * 25), n)]


def _receptacles(rng: random.Random, layout: Counter[str], cells: list[tuple[int, int]], size: Size) -> tuple[Receptacle, ...]:
    """Give every receptacle an id and a location; a few share the location of the one before."""
    made: list[Receptacle] = []
    names = [name for name, count in layout.items() for _ in range(count)]
    for k, (name, (x, z)) in enumerate(zip(names, cells, strict=True)):
        # Its own cell makes the id unique, wherever the agent has to stand to use it.
        id = f"{name.removesuffix('Basin')}{_at(25 * x, rng.randrange(10, 180), 25 * z)}"
        id += f"_bar_{name}" if name.endswith("Basin") else ""
        place = _place(rng, x, z)
        if k and rng.random() < size.shared_places:
            place = made[-1].place
        fixed = name not in ALWAYS_OPENABLE and rng.random() < size.fixed_fronts
        made.append(Receptacle(id, name, place, name in OPENABLE and not fixed))
    return tuple(made)


def _items(rng: random.Random, goal: Goal, room: Room, size: Size, receptacles: tuple[Receptacle, ...]) -> tuple[Item, ...]:
    """Draw the objects and put each one somewhere it belongs: the goal's first, then others until the room is full."""
    total = rng.randint(*size.objects)
    first = [goal.obj] * (2 if _two(goal) else 1) + ([LAMP] if goal.recep == LAMP else [])
    others = rng.choices(_objects(room, size), k=8 * total)  # more than needed: some find no place
    crowd = [0] * len(receptacles)
    count: Counter[str] = Counter()
    items: list[Item] = []
    for kind in first + others:
        if len(items) == total:
            break
        homes = _starts(goal, room, size) if kind == goal.obj else _homes(kind, room, size)
        free = [(k, r) for k, r in enumerate(receptacles) if r.kind in homes and crowd[k] < _room_for(r, size)]
        if not free or count[kind] == 3:
            continue  # the room has no place left for it, or enough of it
        weights = [1 / (homes.index(r.kind) + 1) for _, r in free]
        where, _ = rng.choices(free, weights)[0]
        # Random first, so that names and lists mix the receptacles; then its number, so that no two ids are equal.
        id = f"{kind}{_at(rng.randrange(-300, 300), rng.randrange(10, 180), len(items))}"
        items.append(Item(id, kind, where))
        crowd[where] += 1
        count[kind] += 1
    return tuple(items)


def _room_for(receptacle: Receptacle, size: Size) -> int:
    return 1 if receptacle.kind in HOLDS_ONE else size.crowd


def _at(x: int, y: int, z: int) -> str:
    """Spell a position, given in centimetres, as the official ids do."""
    return "".join(f"_bar_{_sign(n)}{abs(n) // 100:02d}_dot_{abs(n) % 100:02d}" for n in (x, y, z))


def _place(rng: random.Random, x: int, z: int) -> str:
    """Spell a location: a cell, and which way the agent looks."""
    return f"loc_bar_{_integer(x)}_bar_{_integer(z)}_bar_{rng.randrange(4)}_bar_60"


def _integer(n: int) -> str:
    return f"_minus_{-n}" if n < 0 else str(n)


def _sign(n: int) -> str:
    return "_plus_" if n > 0 else "_minus_" if n < 0 else ""
