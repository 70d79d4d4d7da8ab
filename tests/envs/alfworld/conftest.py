"""Fixtures of the ALFWorld tests: official games and recordings, where there are any, and tiny games."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.alfworld.game import Game

TRANSCRIPTS = ("new", "old", "cover")


@pytest.fixture(scope="session")
def alfworld_shared(shared: Callable[[str, str], Path]) -> Path:
    """The folder with the archive and the recordings."""
    return shared("data/alfworld/transcripts", "official ALFWorld data").parent


@pytest.fixture(scope="session")
def alfworld_walks(alfworld_shared: Path) -> dict[str, list[dict[str, Any]]]:
    """The recorded walks of the real engine, by file."""
    out = {}
    for name in TRANSCRIPTS:
        with gzip.open(alfworld_shared / f"transcripts/{name}.jsonl.gz", "rt") as lines:
            out[name] = [json.loads(line) for line in lines]
    return out


@pytest.fixture(scope="session")
def alfworld_data(alfworld_shared: Path, alfworld_walks: dict[str, list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds json_2.1.1 with all of valid_seen and the recorded games of train."""
    archive = alfworld_shared / "json_2.1.1.tar.xz"
    if not archive.exists():
        pytest.skip(f"{archive} is missing")
    needed = {f"json_2.1.1/{walk['game']}" for walks in alfworld_walks.values() for walk in walks}
    folder = tmp_path_factory.mktemp("alfworld")
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name in needed or member.name.startswith("json_2.1.1/valid_seen/"):
                tar.extract(member, folder, filter="data")
    return folder


# ---- tiny games

PLACE_GOAL = """(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and {extra} (inReceptacle ?o ?r) (objectType ?o {otype}) (receptacleType ?r {rtype}))))))"""
TWO_GOAL = """(:goal (and (exists (?r - receptacle) (exists (?o1 - object)
    (and (objectType ?o1 {otype}) (receptacleType ?r {rtype}) (inReceptacle ?o1 ?r)
    (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 {otype}) (receptacleType ?r {rtype})
    (inReceptacle ?o2 ?r))))))))"""
LIGHT_GOAL = """(:goal (and (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
    (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
    (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o {otype}) (holds ?a ?o)))))"""
TREATMENTS = {
    "clean": "(cleanable ?o) (isClean ?o)",
    "hot": "(heatable ?o) (isHot ?o)",
    "cool": "(coolable ?o) (isCool ?o)",
}
ABILITIES = {
    "apple": "pickupable cleanable heatable coolable sliceable", "mug": "pickupable isReceptacleObject cleanable",
    "knife": "pickupable cleanable", "book": "pickupable", "statue": "", "desklamp": "toggleable",
}  # fmt: skip
OPENABLE = ("fridge", "microwave", "drawer")


def tiny_text(rooms: dict[str, dict[str, str]], goal: str = "apple > countertop", *, facts: str = "", task: str = "do it") -> str:
    """Return a game file's text. `rooms`: location → receptacle → its objects, all by short ids such as "apple_1".

    A receptacle id ending in "!" has no door though its class has one. `goal`: "apple > countertop", "hot apple > …",
    "two apple > …", or "apple in light". Every class may contain every class, but nothing goes into a drawer.
    """
    init = ["(atLocation agent1 loc_bar_0)"]
    classes = set()
    for place, receptacles in rooms.items():
        for r, inside in receptacles.items():
            kind, r_id = r.split("_")[0], r.rstrip("!").replace("_", "_bar_", 1)
            if kind.endswith("basin"):  # as in the official files: sink_bar_1_bar_sinkbasin
                r_id = f"{r_id.replace('basin', '', 1)}_bar_{kind}"
            init += [f"(receptacleAtLocation {r_id} loc_bar_{place})", f"(receptacleType {r_id} {kind}Type)"]
            init += [f"(openable {r_id})"] if kind in OPENABLE and not r.endswith("!") else []
            init += [f"(canContain {kind}Type {o}Type)" for o in ABILITIES if kind != "drawer"]
            for o in inside.split():
                o_kind, o_id = o.split("_")[0], o.replace("_", "_bar_", 1)
                init += [f"(objectAtLocation {o_id} loc_bar_{place})", f"(inReceptacle {o_id} {r_id})"]
                init += [f"(objectType {o_id} {o_kind}Type)"] * (o not in classes)
                init += [f"({ability} {o_id})" for ability in ABILITIES[o_kind].split()] * (o not in classes)
                classes.add(o)
    head = "(define (problem tiny)(:domain alfred)(:objects agent1 - agent)"
    problem = f"{head}\n(:init {' '.join(init)} {facts})\n{_goal(goal)})"
    grammar = f'grammar :: """{{"task": [{{"rhs": "Your task is to: {task}."}}]}}""";'
    return json.dumps({"pddl_domain": "", "grammar": grammar, "pddl_problem": problem, "solvable": True})


def _goal(goal: str) -> str:
    words = goal.split()
    if words[-1] == "light":
        return LIGHT_GOAL.format(otype=f"{words[0]}Type")
    *first, otype, _, rtype = words
    form = TWO_GOAL if first == ["two"] else PLACE_GOAL
    return form.format(otype=f"{otype}Type", rtype=f"{rtype}Type", extra=TREATMENTS.get("".join(first), ""))


@pytest.fixture(scope="session")
def tiny_source() -> Callable[..., str]:
    """Makes the text of a tiny game, see `tiny_text`."""
    return tiny_text


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Game]:
    """Makes a tiny game, see `tiny_text`."""
    return lambda *args, **options: Game.parse(tiny_text(*args, **options))
