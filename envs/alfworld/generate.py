"""Generates households that are solvable, never won at the start, and disjoint between the splits.

Three rules make held-out households new ones, without comparing any two of them:
- a layout (how many receptacles of each class) belongs to one split, by its hash: the room that a held-out game shows
  in its first sentence occurs in no training game, whatever its goal and size;
- a pair (object, receptacle) of a goal is held out for `valid_unseen`, or not, by its place in the tables;
- `valid_seen` walks through the same goals in the same order as `train`.
"""

from __future__ import annotations

import functools
import json
import random
import warnings
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from agentgym.errors import TaskError, did_you_mean

from .build import build, feasible, layout_tenth
from .game import Game
from .households import LAMP, OBJECTS, RECEPTACLES, ROOMS, SIZES
from .problem import TASK_TYPES, Goal, Household, game_file

SPLITS = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}  # split -> how many ids by default
_SHARE = {"train": range(0, 6), "valid_seen": range(6, 8), "valid_unseen": range(8, 10)}  # tenths of all layouts


class Households:
    """One split of generated games: ids, and for every id its game, each made when it is asked for.

    `size` is one of mini, small, medium, full; `task_types` keeps only ids of these types (those that stay are the
    same); `n` is the number of ids (default: 2000 for train, 200 for a held-out split). The same id gives the same text
    on every machine. Raises TaskError on an unknown split, size or task type.
    """

    def __init__(self, split: str, *, size: str = "mini", task_types: Sequence[str] | None = None, n: int | None = None) -> None:
        _known("split", [split], SPLITS)
        _known("size", [size], SIZES)
        types = TASK_TYPES if task_types is None else task_types
        _known("task type", types, TASK_TYPES)
        if not types:
            raise TaskError(f"Households(task_types={task_types}): no task type is left; allowed: {TASK_TYPES}")
        if n is not None and n < 1:
            raise TaskError(f"Households(n={n}): n must be at least 1")
        self.split = split
        self.size = size
        wanted = [i for i, name in enumerate(TASK_TYPES) if name in types]
        count = SPLITS[split] if n is None else -(-n // len(wanted)) * len(TASK_TYPES)
        self._numbers = [k for k in range(count) if k % len(TASK_TYPES) in wanted][:n]

    def ids(self) -> list[str]:
        """Return all ids, in a fixed order in which the task types alternate."""
        return list(self._ids)

    def task_type(self, id: str) -> str:
        """Return the task type of the game `id`."""
        return TASK_TYPES[self._number(id) % len(TASK_TYPES)]

    def household(self, id: str) -> Household:
        """Return the layout, the placement and the goal of the game `id`."""
        _, goal, room, scene = self._first_stage(self._number(id))
        rng = random.Random(f"household {id}")
        share = _SHARE[self.split]
        return build(rng, goal, ROOMS[room], SIZES[self.size], scene=scene, accept=lambda c: layout_tenth(c) in share)

    def source(self, id: str) -> str:
        """Return the text of the `game.tw-pddl` of the game `id`."""
        return game_file(self.household(id), name=id.rsplit("/", 1)[1])

    def game(self, id: str) -> Game:
        """Return the game `id`."""
        return Game.parse(self.source(id), source=id)

    def write(self, folder: str | Path, ids: Iterable[str] | None = None) -> list[Path]:
        """Write games in the layout of the official download below `folder`; return their `game.tw-pddl` files.

        Where the package `alfworld` is installed the files get its domain and grammar, and the original engine plays
        them. Otherwise they hold our own, which only agentgym reads, and a warning says so.
        """
        packaged = _packaged_rules()
        if packaged is None:
            warnings.warn(
                "the package `alfworld` is not installed: these games play in agentgym but not in the original engine; "
                "`pip install agentgym[alfworld]` and write them again to play them there",
                stacklevel=2,
            )
        files = []
        for id in self.ids() if ids is None else ids:
            household = self.household(id)
            data = json.loads(game_file(household, name=id.rsplit("/", 1)[1]))
            if packaged is not None:
                domain, grammar = packaged
                data |= {"pddl_domain": domain, "grammar": grammar.replace("UNKNOWN GOAL", household.task)}
            trial = Path(folder) / "json_2.1.1" / id
            trial.mkdir(parents=True, exist_ok=True)
            (trial / "game.tw-pddl").write_text(json.dumps(data), encoding="utf-8")
            (trial / "traj_data.json").write_text(json.dumps(_trajectory(id, household)), encoding="utf-8")
            files.append(trial / "game.tw-pddl")
        return files

    def _first_stage(self, number: int) -> tuple[str, Goal, str, int]:
        """Return the id and all that it shows: goal, room, scene. Cheap: no household is built."""
        round_, which = divmod(number, len(TASK_TYPES))
        goals = _goals(self.size, self.split == "valid_unseen")[TASK_TYPES[which]]
        goal, rooms = goals[round_ % len(goals)]
        rng = random.Random(f"goal {self.split} {self.size} {number}")
        room = rng.choice(rooms)
        scene = ROOMS[room].scene + rng.randrange(30)
        name = f"{goal.task_type}-{goal.obj}-None-{goal.recep}-{scene}"
        return f"{self.split}/{name}/trial_{self.size}_{number:06d}", goal, room, scene

    def _number(self, id: str) -> int:
        number = self._ids.get(id)
        if number is None:
            raise TaskError(
                f"no generated game {id!r} in split {self.split!r}, size {self.size!r}; it has {len(self._ids)} ids, "
                f"the first is {next(iter(self._ids))!r}.{did_you_mean(id, self._ids)}"
            )
        return number

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {self._first_stage(number)[0]: number for number in self._numbers}


def _known(what: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    for name in names:
        if name not in allowed:
            raise TaskError(f"unknown {what} {name!r}; allowed: {', '.join(allowed)}.{did_you_mean(name, allowed)}")


def _packaged_rules() -> tuple[str, str] | None:
    """Return the domain and the grammar that the package `alfworld` ships, or None where it is not installed."""
    spec = find_spec("alfworld")  # finds it without importing it: that would load the whole engine
    if spec is None or spec.origin is None:
        return None
    data = Path(spec.origin).parent / "data"
    return (data / "alfred.pddl").read_text(encoding="utf-8"), (data / "alfred.twl2").read_text(encoding="utf-8")


def _trajectory(id: str, household: Household) -> dict[str, object]:
    """Return what `traj_data.json` says about a game, as far as players read it."""
    goal = household.goal
    look = goal.recep == LAMP
    return {
        "task_id": id.rsplit("/", 1)[1],
        "task_type": goal.task_type,
        "pddl_params": {
            "object_target": goal.obj,
            "parent_target": "" if look else goal.recep,
            "toggle_target": LAMP if look else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "turk_annotations": {"anns": [{"task_desc": household.task, "high_descs": []}]},
        "scene": {"floor_plan": f"FloorPlan{household.scene}", "scene_num": household.scene},
    }


def held_out(obj: str, recep: str) -> bool:
    """Return whether goals with this pair are kept for `valid_unseen`: every fifth of each object and receptacle."""
    column = RECEPTACLES.index(recep) if recep != LAMP else len(RECEPTACLES)
    return (OBJECTS.index(obj) + 2 * column) % 5 == 0


@functools.lru_cache
def _goals(size: str, unseen: bool) -> dict[str, list[tuple[Goal, list[str]]]]:
    """Return the goals of every task type, shuffled, each with the rooms where it is feasible."""
    table: dict[str, list[tuple[Goal, list[str]]]] = {}
    for task_type in TASK_TYPES:
        receps = [LAMP] if task_type == "look_at_obj_in_light" else RECEPTACLES
        goals = [Goal(task_type, obj, recep) for obj in OBJECTS for recep in receps if held_out(obj, recep) == unseen]
        rooms = [(goal, [name for name, room in ROOMS.items() if feasible(goal, room, SIZES[size])]) for goal in goals]
        table[task_type] = [(goal, names) for goal, names in rooms if names]
        random.Random(f"goals {task_type}").shuffle(table[task_type])
    return table
