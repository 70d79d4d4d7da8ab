"""Writes a household and a goal as the text of a `game.tw-pddl` file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .households import ABILITIES, CAN_CONTAIN, LAMP

# task type -> its two sentences, and the predicates (ability, state) that the delivered object must have
SENTENCES = {
    "pick_and_place_simple": ("put a {obj} in {recep}", "put some {obj} on {recep}"),
    "look_at_obj_in_light": ("look at {obj} under the {recep}", "examine the {obj} with the {recep}"),
    "pick_clean_then_place_in_recep": ("put a clean {obj} in {recep}", "clean some {obj} and put it in {recep}"),
    "pick_heat_then_place_in_recep": ("put a hot {obj} in {recep}", "heat some {obj} and put it in {recep}"),
    "pick_cool_then_place_in_recep": ("put a cool {obj} in {recep}", "cool some {obj} and put it in {recep}"),
    "pick_two_obj_and_place": ("put two {obj} in {recep}", "find two {obj} and put them in {recep}"),
}
TASK_TYPES = tuple(SENTENCES)
STATES = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool"),
}


@dataclass(frozen=True)
class Goal:
    """What is asked: the task type, the class of the object, and the class of the receptacle (or the lamp)."""

    task_type: str
    obj: str
    recep: str

    def sentence(self, template: int) -> str:
        """Return the task in one of its two wordings, without the full stop."""
        return SENTENCES[self.task_type][template].format(obj=self.obj.lower(), recep=self.recep.lower())


@dataclass(frozen=True)
class Receptacle:
    """One receptacle: its id, its class, the location where the agent stands to use it, whether it opens."""

    id: str
    kind: str
    place: str
    openable: bool


@dataclass(frozen=True)
class Item:
    """One object: its id, its class, and the number of the receptacle that holds it."""

    id: str
    kind: str
    where: int


@dataclass(frozen=True)
class Household:
    """One game: the layout (receptacles), the placement of the objects, and what is asked."""

    goal: Goal
    task: str
    scene: int
    receptacles: tuple[Receptacle, ...]
    items: tuple[Item, ...]
    start: str

    def fingerprint(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return what can be told apart in the household by its texts: every receptacle's class with its contents."""
        contents: list[list[str]] = [[] for _ in self.receptacles]
        for item in self.items:
            contents[item.where].append(item.kind)
        return tuple(sorted((r.kind, tuple(sorted(c))) for r, c in zip(self.receptacles, contents, strict=True)))


def game_file(household: Household, *, name: str) -> str:
    """Return the JSON text of `game.tw-pddl`, with a minimal domain and grammar of our own."""
    return json.dumps(
        {
            "pddl_domain": DOMAIN,
            "grammar": GRAMMAR.replace("UNKNOWN GOAL", household.task),
            "pddl_problem": problem(household, name=name),
            "solvable": True,
        }
    )


def problem(household: Household, *, name: str) -> str:
    """Return the PDDL problem: objects, initial facts, goal."""
    objects = "\n  ".join(_declarations(household))
    facts = "\n  ".join(_facts(household))
    goal = _goal(household.goal)
    head = f"(define (problem {name})\n(:domain alfred)"
    return f"{head}\n(:objects\n  {objects})\n(:init\n  {facts})\n(:goal (and {goal})))\n"


def _declarations(h: Household) -> Iterator[str]:
    yield "agent1 - agent"
    for names, kind in (
        ((item.id for item in h.items), "object"),
        (_once(f"{item.kind}Type" for item in h.items), "otype"),
        ((r.id for r in h.receptacles), "receptacle"),
        (_once(f"{r.kind}Type" for r in h.receptacles), "rtype"),
        (_once([h.start, *(r.place for r in h.receptacles)]), "location"),
    ):
        yield from (f"{name} - {kind}" for name in names)


def _facts(h: Household) -> Iterator[str]:
    yield f"(atLocation agent1 {h.start})"
    for r in h.receptacles:
        yield f"(receptacleType {r.id} {r.kind}Type)"
        yield f"(receptacleAtLocation {r.id} {r.place})"
        if r.openable:
            yield f"(openable {r.id})"
    kinds = _once(item.kind for item in h.items)
    for recep in _once(r.kind for r in h.receptacles):
        yield from (f"(canContain {recep}Type {kind}Type)" for kind in kinds if kind in CAN_CONTAIN[recep])
    for item in h.items:
        holder = h.receptacles[item.where]
        yield f"(objectType {item.id} {item.kind}Type)"
        if item.kind != LAMP:
            yield f"(pickupable {item.id})"
        yield from (f"({ability} {item.id})" for ability, able in ABILITIES.items() if item.kind in able)
        yield f"(inReceptacle {item.id} {holder.id})"
        yield f"(objectAtLocation {item.id} {holder.place})"


def _goal(goal: Goal) -> str:
    """Return the goal in the shape that the official files have for this task type."""
    if goal.task_type == "look_at_obj_in_light":
        return (
            "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {goal.recep}Type) (toggleable ?ot) (isToggled ?ot) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {goal.obj}Type) (holds ?a ?o)))"
        )
    there = f"(receptacleType ?r {goal.recep}Type)"
    if goal.task_type == "pick_two_obj_and_place":
        return (
            "(exists (?r - receptacle) (exists (?o1 - object) (and "
            f"(objectType ?o1 {goal.obj}Type) {there} (inReceptacle ?o1 ?r) (exists (?o2 - object) (and "
            f"(not (= ?o1 ?o2)) (objectType ?o2 {goal.obj}Type) {there} (inReceptacle ?o2 ?r))))))"
        )
    state = "".join(f"({predicate} ?o) " for predicate in STATES.get(goal.task_type, ()))
    return f"(exists (?r - receptacle) (exists (?o - object) (and {state}(objectType ?o {goal.obj}Type) {there} (inReceptacle ?o ?r))))"


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))  # in the order of first appearance


GRAMMAR = """grammar :: \"\"\"
    {
        "intro": [{"rhs": "-= Welcome to TextWorld, ALFRED! =-\\n\\n#look.feedback#\\n\\n#task#"}],
        "task": [{"rhs": "Your task is to: UNKNOWN GOAL."}]
    }
\"\"\";
"""

# The rules in PDDL, for a reader or a planner. The texts of the real engine need the files of the package `alfworld`:
# `Households.write` puts those in.
DOMAIN = """(define (domain alfred)
(:requirements :adl :typing)
(:types agent location receptacle object rtype otype)
(:predicates
  (atLocation ?a - agent ?l - location) (receptacleAtLocation ?r - receptacle ?l - location)
  (objectAtLocation ?o - object ?l - location) (inReceptacle ?o - object ?r - receptacle)
  (receptacleType ?r - receptacle ?t - rtype) (objectType ?o - object ?t - otype)
  (canContain ?rt - rtype ?ot - otype) (openable ?r - receptacle) (opened ?r - receptacle)
  (pickupable ?o - object) (isReceptacleObject ?o - object) (holds ?a - agent ?o - object) (holdsAny ?a - agent)
  (cleanable ?o - object) (isClean ?o - object) (heatable ?o - object) (isHot ?o - object)
  (coolable ?o - object) (isCool ?o - object) (sliceable ?o - object) (isSliced ?o - object)
  (toggleable ?o - object) (isToggled ?o - object))
(:action go :parameters (?a - agent ?from ?to - location ?r - receptacle)
  :precondition (and (atLocation ?a ?from) (receptacleAtLocation ?r ?to) (not (= ?from ?to)))
  :effect (and (not (atLocation ?a ?from)) (atLocation ?a ?to)))
(:action open :parameters (?a - agent ?l - location ?r - receptacle)
  :precondition (and (openable ?r) (not (opened ?r)) (atLocation ?a ?l) (receptacleAtLocation ?r ?l))
  :effect (opened ?r))
(:action close :parameters (?a - agent ?l - location ?r - receptacle)
  :precondition (and (opened ?r) (atLocation ?a ?l) (receptacleAtLocation ?r ?l))
  :effect (not (opened ?r)))
(:action take :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (pickupable ?o) (inReceptacle ?o ?r) (not (holdsAny ?a)) (atLocation ?a ?l)
    (receptacleAtLocation ?r ?l) (or (not (openable ?r)) (opened ?r)))
  :effect (and (holds ?a ?o) (holdsAny ?a) (not (inReceptacle ?o ?r)) (not (objectAtLocation ?o ?l))))
(:action move :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
  :precondition (and (holds ?a ?o) (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot)
    (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (or (not (openable ?r)) (opened ?r)))
  :effect (and (inReceptacle ?o ?r) (objectAtLocation ?o ?l) (not (holds ?a ?o)) (not (holdsAny ?a))))
(:action clean :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (cleanable ?o) (holds ?a ?o) (receptacleType ?r SinkBasinType) (atLocation ?a ?l)
    (receptacleAtLocation ?r ?l))
  :effect (isClean ?o))
(:action heat :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (heatable ?o) (holds ?a ?o) (receptacleType ?r MicrowaveType) (atLocation ?a ?l)
    (receptacleAtLocation ?r ?l))
  :effect (and (isHot ?o) (not (isCool ?o))))
(:action cool :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (coolable ?o) (holds ?a ?o) (receptacleType ?r FridgeType) (atLocation ?a ?l)
    (receptacleAtLocation ?r ?l))
  :effect (and (isCool ?o) (not (isHot ?o))))
(:action use :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (toggleable ?o) (inReceptacle ?o ?r) (atLocation ?a ?l) (receptacleAtLocation ?r ?l))
  :effect (isToggled ?o)))
"""
