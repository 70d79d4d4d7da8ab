"""Generated households: deterministic, disjoint, of the size that was asked for, in the official format."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.alfworld.build import layout_tenth
from agentgym.envs.alfworld.engine import Engine
from agentgym.envs.alfworld.generate import SPLITS, Households, held_out
from agentgym.envs.alfworld.households import CAN_CONTAIN, HOMES, LAMP, OBJECTS, ROOMS, SIZES
from agentgym.envs.alfworld.problem import TASK_TYPES, Goal, Household
from agentgym.errors import TaskError

GOLDEN = "8e5d3db6fd4ab69d"  # the first 60 training games
DIGEST = """
import hashlib
from agentgym.envs.alfworld.generate import Households
h = Households("train", size="medium", n=30)
print(hashlib.sha256("".join(h.source(i) for i in h.ids()).encode()).hexdigest())
"""


def everything(split: str, size: str = "mini", n: int | None = None) -> list[Household]:
    games = Households(split, size=size, n=n)
    return [games.household(id) for id in games.ids()]


def layout(household: Household) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(r.kind for r in household.receptacles).items()))


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Household]]:
    return {split: everything(split) for split in SPLITS}


# ---- determinism


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    digests = set()
    for seed in ("0", "12345"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        digests.add(subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, check=True).stdout)
    assert len(digests) == 1


def test_the_text_does_not_depend_on_the_machine() -> None:
    games = Households("train", n=60)
    text = "".join(games.source(id) for id in games.ids())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == GOLDEN, "games changed: older results do not compare"


def test_a_game_does_not_depend_on_what_was_asked_for_before() -> None:
    one, other = Households("train"), Households("train", task_types=["look_at_obj_in_light"], n=3)
    for id in reversed(other.ids()):
        assert other.source(id) == one.source(id)


# ---- splits


def test_default_numbers_of_ids(splits: dict[str, list[Household]]) -> None:
    assert {split: len(households) for split, households in splits.items()} == SPLITS


def test_households_of_a_split_are_all_different(splits: dict[str, list[Household]]) -> None:
    for households in splits.values():
        games = Counter((h.goal, h.fingerprint()) for h in households)
        assert len(games) == len(households)


def test_no_household_and_no_layout_occurs_in_two_splits(splits: dict[str, list[Household]]) -> None:
    for view in (Household.fingerprint, layout):
        seen = {split: {view(h) for h in households} for split, households in splits.items()}
        assert seen["train"].isdisjoint(seen["valid_seen"])
        assert seen["train"].isdisjoint(seen["valid_unseen"])
        assert seen["valid_seen"].isdisjoint(seen["valid_unseen"])


@given(number=st.integers(0, 10**6), size=st.sampled_from(list(SIZES)), split=st.sampled_from(list(SPLITS)))
@settings(max_examples=60, deadline=None)
def test_the_layout_alone_tells_the_split(number: int, size: str, split: str) -> None:
    games = Households(split, size=size, n=number % 500 + 1)
    household = games.household(games.ids()[-1])
    tenth = layout_tenth(Counter(r.kind for r in household.receptacles))
    assert split == ("train" if tenth < 6 else "valid_seen" if tenth < 8 else "valid_unseen")


@pytest.mark.parametrize("size", SIZES)
def test_goals_are_those_of_training_or_new_pairs(size: str) -> None:
    names = {split: [id.split("/")[1].split("-") for id in Households(split, size=size).ids()] for split in SPLITS}
    goals = {split: {Goal(parts[0], parts[1], parts[3]) for parts in found} for split, found in names.items()}
    assert goals["valid_seen"] <= goals["train"]
    pairs = {split: {(g.obj, g.recep) for g in found} for split, found in goals.items()}
    assert pairs["train"].isdisjoint(pairs["valid_unseen"])
    assert all(held_out(*pair) for pair in pairs["valid_unseen"])
    assert {g.task_type for g in goals["valid_unseen"]} == set(TASK_TYPES)


# ---- ids


def test_task_types_alternate_and_filter() -> None:
    games = Households("valid_seen")
    assert Counter(map(games.task_type, games.ids())).keys() == set(TASK_TYPES)
    assert max(Counter(map(games.task_type, games.ids())).values()) == 34
    some = Households("valid_seen", task_types=["pick_heat_then_place_in_recep", "look_at_obj_in_light"])
    assert some.ids() == [id for id in games.ids() if "heat" in id or "light" in id]
    assert len(Households("train", task_types=["look_at_obj_in_light"], n=50).ids()) == 50


def test_ids_have_the_official_shape() -> None:
    games = Households("train", n=12)
    for id in games.ids():
        split, name, trial = id.split("/")
        task_type, obj, mrecep, recep, scene = name.split("-")
        goal = games.household(id).goal
        assert (split, mrecep, goal.task_type, goal.obj, goal.recep) == ("train", "None", task_type, obj, recep)
        assert re.fullmatch(r"trial_mini_\d{6}", trial)
        assert games.task_type(id) == games.game(id).task_type == task_type
        assert any(room.scene <= int(scene) < room.scene + 30 for room in ROOMS.values())


@pytest.mark.parametrize("bad", ["", "train/x", "valid_seen/pick_and_place_simple-Mug-None-Shelf-3/trial_mini_000000"])
def test_an_unknown_id_is_an_error_that_says_what_there_is(bad: str) -> None:
    with pytest.raises(TaskError, match=r"no generated game .* in split 'train', size 'mini'; it has 2000 ids"):
        Households("train").game(bad)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"split": "test"}, "unknown split 'test'; allowed: train, valid_seen, valid_unseen"),
        ({"split": "train", "size": "Mini"}, "unknown size 'Mini'.*Did you mean 'mini'"),
        ({"split": "train", "task_types": ["heat"]}, "unknown task type 'heat'; allowed"),
        ({"split": "train", "task_types": []}, "no task type is left"),
        ({"split": "train", "n": 0}, "n must be at least 1"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Households(**arguments)


# ---- households


@pytest.mark.parametrize("size", SIZES)
def test_counts_follow_the_size(size: str) -> None:
    limits = SIZES[size]
    for household in everything("train", size, 120) + everything("valid_unseen", size, 60):
        assert limits.receptacles[0] <= len(household.receptacles) <= limits.receptacles[1]
        assert limits.objects[0] <= len(household.items) <= limits.objects[1]
        assert len({r.id for r in household.receptacles} | {i.id for i in household.items}) == len(household.receptacles) + len(household.items)
        assert household.start not in {r.place for r in household.receptacles}
        for item in household.items:
            assert household.receptacles[item.where].kind in HOMES[item.kind]


def test_mini_has_a_small_vocabulary(splits: dict[str, list[Household]]) -> None:
    words = {split: {thing.kind for h in games for thing in h.receptacles + h.items} for split, games in splits.items()}
    assert len(words["train"]) <= 45
    assert words["train"] <= (SIZES["mini"].vocabulary or set())
    assert words["valid_seen"] | words["valid_unseen"] <= words["train"], "a word that training never shows"


@pytest.mark.parametrize("size", SIZES)
def test_no_game_is_won_at_the_start(size: str) -> None:
    games = Households("train", size=size, n=120)
    for id in games.ids():
        engine = Engine(games.game(id))
        assert not engine.won
        assert engine.game.task == games.household(id).task


def test_the_tables_agree() -> None:
    for obj, homes in HOMES.items():
        assert obj == LAMP or all(obj in CAN_CONTAIN[home] for home in homes)
    for room in ROOMS.values():
        assert set(room.always) <= set(room.most) <= set(CAN_CONTAIN)
        assert all(set(HOMES[obj]) & set(room.most) for obj in room.objects)
    assert {obj for room in ROOMS.values() for obj in room.objects} == set(OBJECTS)


# ---- files


def test_write_makes_the_official_layout(tmp_path: Path) -> None:
    games = Households("valid_seen", n=2)
    try:
        import alfworld  # noqa: F401
    except ImportError:
        with pytest.warns(UserWarning, match="`alfworld` is not installed"):
            files = games.write(tmp_path)
    else:
        files = games.write(tmp_path)
    assert files == [tmp_path / "json_2.1.1" / id / "game.tw-pddl" for id in games.ids()]
    for id, file in zip(games.ids(), files, strict=True):
        data = json.loads(file.read_text())
        assert data["solvable"] is True
        assert f"Your task is to: {games.household(id).task}." in data["grammar"]
        said = json.loads((file.parent / "traj_data.json").read_text())
        assert said["task_type"] == games.task_type(id)
        assert said["pddl_params"]["object_target"] == games.household(id).goal.obj
