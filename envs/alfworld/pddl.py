"""Reads the `game.tw-pddl` text: the JSON around it, the facts of `(:init …)`, the goal, and the task sentence."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import DataError

Facts = dict[str, list[tuple[str, str]]]
"""Predicate (lower case) → its argument pairs in file order; the second argument of a one-place predicate is ''."""


class GameFileError(DataError):
    """A game file is damaged, or says something that the rules of ALFWorld do not know."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins the game, as the file's `(:goal …)` says it.

    kind             place | two | light
    object_type      lower-case otype of the object, e.g. "mugtype"
    receptacle_type  lower-case rtype of where it must lie; for `light` '' (there is none)
    lamp_type        lower-case otype of the lamp; '' unless `light`
    treatment        '' | clean | hot | cool: what the object must be now (and be able to become)
    """

    kind: str
    object_type: str
    receptacle_type: str = ""
    lamp_type: str = ""
    treatment: str = ""

    @property
    def task_type(self) -> str:
        """ALFRED's name of this kind of task."""
        return TASK_TYPES[self.kind, self.treatment]


TASK_TYPES = {
    ("place", ""): "pick_and_place_simple",
    ("light", ""): "look_at_obj_in_light",
    ("place", "clean"): "pick_clean_then_place_in_recep",
    ("place", "hot"): "pick_heat_then_place_in_recep",
    ("place", "cool"): "pick_cool_then_place_in_recep",
    ("two", ""): "pick_two_obj_and_place",
}

_NEEDED = ("pddl_domain", "grammar", "pddl_problem")
_TASK = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)"')
_INIT = re.compile(r"\(\s*:init\b", re.IGNORECASE)
_END = re.compile(r"\)\s*\)")  # facts are flat, so the first two closing brackets in a row end the section
_FACT = re.compile(r"\(\s*([^\s()]+)(?:\s+([^\s()]+))?(?:\s+([^\s()]+))?\s*\)")
_COMMENT = re.compile(r";[^\n]*")
_GOAL = re.compile(r"\(\s*:goal\b", re.IGNORECASE)


def read_text(path: str | Path) -> str:
    """Return the text of a file. Raises GameFileError that names it."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise GameFileError(f"{path}: cannot be read ({e})") from None


def read_json(text: str, source: str) -> dict[str, Any]:
    """Return the content of a game file, checked to have what is needed. Raises GameFileError naming `source`."""
    try:
        data = json.loads(text)
    except ValueError as e:
        raise GameFileError(f"{source}: not valid JSON ({e}); the file is damaged, unpack it again") from None
    missing = [k for k in _NEEDED if not isinstance(data, dict) or not isinstance(data.get(k), str)]
    if missing:
        raise GameFileError(f"{source}: the key {missing[0]!r} is missing; a game file has {', '.join(_NEEDED)}")
    return data


def read_task(grammar: str, source: str) -> str:
    """Return the task's sentence without its full stop."""
    found = _TASK.search(grammar)
    if not found:
        raise GameFileError(f'{source}: the grammar has no line "Your task is to: …"')
    sentence: str = json.loads(f'"{found[1]}"') if "\\" in found[1] else found[1]
    if "UNKNOWN GOAL" in sentence:
        raise GameFileError(f"{source}: the grammar still says 'UNKNOWN GOAL': put the task's sentence there")
    return sentence.removesuffix(".")


def read_problem(problem: str, source: str) -> tuple[Facts, Goal]:
    """Return the initial facts (ids in lower case) and the goal of a PDDL problem."""
    if ";" in problem:
        problem = _COMMENT.sub("", problem)
    init = _INIT.search(problem)
    end = _END.search(problem, init.end()) if init else None
    if not init or not end:
        raise GameFileError(f"{source}: found no complete (:init …) in the problem")
    facts: Facts = defaultdict(list)
    for fact in problem[init.end() : end.start()].lower().replace("(", " ").split(")"):
        predicate, first, second, *more = [*fact.split(), "", "", ""]
        if any(more) or not first:
            raise GameFileError(f"{source}: (:init …) has the fact '({fact.strip()})'; a fact has one or two arguments")
        facts[predicate].append((first, second))
    start = _GOAL.search(problem)
    if not start:
        raise GameFileError(f"{source}: the problem has no (:goal …)")
    return facts, read_goal(problem[start.start() :].lower(), source)


_PLACE = {"inreceptacle", "objecttype", "receptacletype"}
_LIGHT = {"objecttype", "toggleable", "istoggled", "receptacleatlocation", "atlocation", "inreceptacle", "holds"}
_SHAPES = {
    frozenset(_PLACE): ("place", ""),
    frozenset(_PLACE | {"cleanable", "isclean"}): ("place", "clean"),
    frozenset(_PLACE | {"heatable", "ishot"}): ("place", "hot"),
    frozenset(_PLACE | {"coolable", "iscool"}): ("place", "cool"),
    frozenset(_PLACE | {"="}): ("two", ""),
    frozenset(_LIGHT): ("light", ""),
}


def read_goal(text: str, source: str) -> Goal:
    """Return the goal that `text` (lower case, from "(:goal" on) describes; its set of conditions tells the kind."""
    conditions = [c for c in _FACT.findall(_balanced(text, source)) if not c[0].startswith("?")]
    names = frozenset(name for name, _, _ in conditions)
    kind, treatment = _SHAPES.get(names, ("", ""))
    lamp = next((variable for name, variable, _ in conditions if name == "toggleable"), None)
    objects = {v: t for name, v, t in conditions if name == "objecttype" and v != lamp}
    lamps = {t for name, v, t in conditions if name == "objecttype" and v == lamp}
    receptacles = {t for name, _, t in conditions if name == "receptacletype"}
    types = set(objects.values())
    wanted = (2 if kind == "two" else 1, 1, kind != "light", kind == "light")
    if not kind or (len(objects), len(types), len(receptacles), len(lamps)) != wanted:
        found = ", ".join(sorted(names)) or "none"
        raise GameFileError(f"{source}: the goal is of none of the six known kinds; its conditions are {found}")
    return Goal(kind, types.pop(), "".join(receptacles), "".join(lamps), treatment)


def _balanced(text: str, source: str) -> str:
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and c == ")":
            return text[: i + 1]
    raise GameFileError(f"{source}: the (:goal …) does not end; the problem is truncated")
