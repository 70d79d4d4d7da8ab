"""The Gymnasium environment: its contract, its options, and what it says when it is used wrongly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.envs.alfworld import alfworld
from agentgym.errors import DataError, EnvError, TaskError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*render fps.*"),
    pytest.mark.filterwarnings("ignore:.*left out 1 damaged.*"),
]
ID = "agentgym/ALFWorld-v0"
GAME = "train/pick_and_place_simple-Apple-None-CounterTop-1/trial_1"
WAY = ["go to shelf 1", "take apple 1 from shelf 1", "go to countertop 1", "move apple 1 to countertop 1"]


@pytest.fixture
def folder(tmp_path: Path, tiny_source: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data with one playable game, and one that is damaged."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    task = "put a apple in countertop"
    text = tiny_source({"1": {"shelf_1": "apple_1"}, "2": {"countertop_1": ""}}, task=task)
    for trial, content in (("trial_1", text), ("trial_9", text[:99])):
        file = tmp_path / "json_2.1.1" / GAME.replace("trial_1", trial) / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        file.write_text(content)
    return tmp_path


@pytest.fixture
def env(folder: Path) -> alfworld:
    return alfworld(data=folder)


def test_the_class_is_loaded_only_when_it_is_asked_for() -> None:
    loaded = "print('agentgym.envs.alfworld.env' in sys.modules)"
    code = f"import sys, agentgym.envs.alfworld as a; {loaded}; a.alfworld; {loaded}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "True"]


@pytest.mark.parametrize("options", [{}, {"split": "valid_unseen", "state": "hash", "dialect": "put", "size": "small"}])
def test_gymnasium_finds_nothing_to_mend(options: dict[str, str]) -> None:
    check_env(gymnasium.make(ID, **options).unwrapped)


def test_an_episode(env: alfworld) -> None:
    observation, info = env.reset(options={"task": GAME})
    assert observation.endswith("Your task is to: put a apple in countertop.")
    assert info == {
        "task_id": GAME, "task_type": "pick_and_place_simple", "goal": "put a apple in countertop.", "state": observation,
        "success": False, "valid": True,
        "admissible": ["go to countertop 1", "go to shelf 1", "help", "inventory", "look"],
    }  # fmt: skip
    for command in WAY[:-1]:
        observation, reward, terminated, truncated, info = env.step(command)
        assert (reward, terminated, truncated, info["success"], info["valid"]) == (0.0, False, False, False, True)
        assert info["state"] == observation == env.render()
    observation, reward, terminated, truncated, info = env.step(WAY[-1])
    assert observation == "You move the apple 1 to the countertop 1."
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(EnvError, match=r"call reset\(\)"):
        env.step("look")
    env.reset()
    assert not env.step("look")[4]["success"]


def test_an_invalid_command_costs_a_step_and_is_marked(folder: Path) -> None:
    env = alfworld(data=folder, max_steps=3)
    env.reset(options={"task": GAME})
    observation, _, _, _, info = env.step("eat apple 1")
    assert (observation, info["valid"]) == ("Nothing happens.", False)
    assert env.step("look")[4]["valid"]
    assert env.step("x" * 200_000)[2:4] == (False, True)
    with pytest.raises(EnvError, match=r"call reset\(\)"):
        env.step("look")


@pytest.mark.parametrize(("limit", "end"), [(4, (True, False)), (3, (False, True)), (None, (True, False))])
def test_success_in_the_last_step_is_no_truncation(folder: Path, limit: int | None, end: tuple[bool, bool]) -> None:
    env = alfworld(data=folder, max_steps=limit)
    env.reset(options={"task": GAME})
    for command in WAY[: limit or 4]:
        _, _, terminated, truncated, _ = env.step(command)
    assert (terminated, truncated) == end


def test_scale_dialect_and_hash(folder: Path) -> None:
    env = alfworld(data=folder, scale=10.0, dialect="put", state="hash")
    _, start = env.reset(options={"task": GAME})
    infos = [env.step(command)[4] for command in ["look", *WAY[:2]]]
    assert infos[0]["state"] == start["state"] != infos[1]["state"] != infos[2]["state"]
    assert env.step("put apple 1 in/on shelf 1")[4]["state"] == infos[1]["state"]  # as it was before it was taken
    for command in WAY[1:3]:
        env.step(command)
    assert env.step("put apple 1 in/on countertop 1")[1:3] == (10.0, True)


def test_seeds_pick_games_and_the_generator_goes_on() -> None:
    env, twin = alfworld(), alfworld()
    assert env.reset(seed=7)[1]["task_id"] == twin.reset(seed=7)[1]["task_id"]
    following = [env.reset()[1]["task_id"] for _ in range(5)]
    assert following == [twin.reset()[1]["task_id"] for _ in range(5)]
    assert len(set(following)) > 1


def test_unknown_and_damaged_tasks(env: alfworld) -> None:
    with pytest.raises(TaskError, match=f"no task .*Did you mean '{GAME}'"):
        env.reset(options={"task": GAME.replace("trial_1", "trial_2")})
    with pytest.raises(DataError, match=r"trial_9' is damaged.*not valid JSON"):
        env.reset(options={"task": GAME.replace("trial_1", "trial_9")})
    with pytest.raises(EnvError, match="no key 'game'"):
        env.reset(options={"game": GAME})
    with pytest.raises(EnvError, match="no episode is going on"):
        env.step("look")


@pytest.mark.parametrize("action", [None, 3, b"look", ["look"]])
def test_actions_are_text(env: alfworld, action: object) -> None:
    env.reset()
    with pytest.raises(EnvError, match=f"text, got {type(action).__name__}"):
        env.step(action)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "valid-seen"}, "split='valid-seen'.*valid_seen"),
        ({"dialect": "new"}, "dialect='new'.*move, put"),
        ({"engine": "real"}, "engine='real'.*fast, textworld"),
        ({"state": "obs"}, "state='obs'.*observation"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"caches": False}, "caches=False.*only with engine='textworld'"),
        ({"timeout": 3.0}, "timeout=3.0.*only with engine='textworld'"),
        ({"data": "/nowhere", "size": "mini"}, "size='mini'.*only with data=None"),
        ({"data": "/nowhere"}, "found no ALFWorld games"),
        ({"size": "huge"}, "huge"),
        ({"task_types": ["cook"]}, "task_types='cook'.*pick_heat"),
        ({"engine": "textworld", "state": "hash"}, "state='hash'.*only with engine='fast'"),
    ],
)
def test_options_that_cannot_be_honoured_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises((EnvError, TaskError), match=message):
        alfworld(**options)  # type: ignore[arg-type]


def test_task_types_and_manifest(env: alfworld) -> None:
    heat = alfworld(task_types=["pick_heat_then_place_in_recep"])
    assert len(heat.tasks()) > 10 and heat.reset()[1]["task_type"] == "pick_heat_then_place_in_recep"
    assert heat.manifest().official is None
    assert (env.manifest().ids, env.manifest().official) == ([GAME], 3553)


def test_changing_what_info_holds_changes_nothing(env: alfworld) -> None:
    _, info = env.reset()
    info["admissible"].clear()
    assert env.step("look")[4]["admissible"]


def test_the_expert_wins_with_and_without_the_true_state(env: alfworld) -> None:
    for planner in (False, True):
        observation, info = env.reset(options={"task": GAME})
        expert = env.expert(planner=planner)
        for _ in range(10):
            observation, reward, done, _, info = env.step(expert.act(observation, info))
            if done:
                break
        assert reward == 1.0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectorised(mode: str) -> None:
    options = {} if mode == "sync" else {"shared_memory": False}
    vector = gymnasium.make_vec(ID, num_envs=3, vectorization_mode=mode, vector_kwargs=options, max_steps=5)
    try:
        observations, infos = vector.reset(seed=1)
        assert len(set(infos["task_id"])) > 1
        assert all("Your task is to" in text for text in observations)
        for _ in range(5):
            observations, rewards, _, truncations, infos = vector.step(["look", "inventory", "nonsense"])
            assert list(infos["valid"]) == [True, True, False]
            assert all(isinstance(commands, list) for commands in infos["admissible"])
        assert truncations.all() and np.array_equal(rewards, [0.0] * 3)
    finally:
        vector.close()


def test_hundreds_of_instances_share_one_split(alfworld_data: Path) -> None:
    envs = [alfworld(data=alfworld_data, split="valid_seen") for _ in range(300)]
    assert len({id(env._ids) for env in envs}) == 1
    assert len(envs[0].tasks()) == 140


def test_official_games_are_won_by_the_expert(alfworld_data: Path) -> None:
    env = alfworld(data=alfworld_data, split="valid_seen")
    won = 0
    for task in env.tasks()[::7]:
        observation, info = env.reset(options={"task": task})
        assert info["task_id"] == task and json.dumps(info)
        expert, done = env.expert(), False
        while not done:
            observation, _, terminated, truncated, info = env.step(expert.act(observation, info))
            done = terminated or truncated
        won += info["success"]
    assert won == 20
