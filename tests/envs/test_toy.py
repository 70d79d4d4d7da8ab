"""The toy corridor, worked by hand."""

from __future__ import annotations

import pytest

import agentgym
from agentgym.envs.toy import toy
from agentgym.errors import EnvError, TaskError

PLAIN = "6:2-5-0"  # of six rooms: start in the pantry (2), key in the library (5), door in the cellar (0)


def start(task: str = PLAIN, seed: int = 0, **options: object) -> toy:
    env = agentgym.make("toy", **options)
    env.reset(seed=seed, options={"task": task})
    return env  # type: ignore[return-value]


def test_an_episode_by_hand() -> None:
    env = toy()
    observation, info = env.reset(options={"task": PLAIN})
    assert observation == "Your task: take the key and open the door in the cellar.\nYou are in the pantry."
    assert info == {
        "task_id": PLAIN, "task_type": "far", "state": f"{PLAIN} pantry", "admissible": ["go left", "go right"], "success": False, "valid": True,
    }  # fmt: skip
    for _ in range(3):
        observation, *_ = env.step("go right")
    assert observation == "You go right. You are in the library. A key is here."
    assert env.step(" Take KEY ")[4]["state"] == f"{PLAIN} library key"
    for _ in range(5):
        observation, reward, *_ = env.step("go left")
    assert observation.endswith("You are in the cellar. A locked door is here. You have the key.") and reward == 0.0
    observation, reward, terminated, truncated, info = env.step("open door")
    assert (observation, reward, terminated, truncated, info["success"]) == (
        "The door opens. You win.",
        1.0,
        True,
        False,
        True,
    )
    with pytest.raises(EnvError, match="reset"):
        env.step("look")


def test_every_end_is_reachable() -> None:
    env = start()
    env.step("go left")
    env.step("go left")
    observation, reward, terminated, truncated, info = env.step("open door")
    assert (observation, reward, terminated, truncated) == ("The lock breaks. You lose.", 0.0, True, False)
    assert not info["success"]
    env = start(max_steps=2)
    assert env.step("dance")[2:4] == (False, False) and env.step("go right")[2:4] == (False, True)


def test_invalid_actions_cost_a_step_and_nothing_else() -> None:
    env = start()
    observation, *_, info = env.step("take key")
    assert observation == "Nothing happens. You are in the pantry." and not info["valid"] and info["state"] == f"{PLAIN} pantry"


def test_states_meet_again() -> None:
    env = start()
    seen = [env.step(a)[4]["state"] for a in ("go left", "go right", "go left")]
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize("size", [3, 6, 10])
def test_splits_are_disjoint_and_all_tasks_can_be_solved_in_the_least_steps(size: int) -> None:
    train, test = toy(size=size), toy(size=size, split="test", max_steps=30)
    assert not set(train.tasks()) & set(test.tasks())
    assert len(train.tasks()) + len(test.tasks()) == size * (size - 1) ** 2  # start and key are anywhere but at the door
    types = set()
    for task in test.tasks()[:40]:
        observation, info = test.reset(options={"task": task})
        expert, least, done = test.expert(), test.layout.steps, False
        types.add(info["task_type"])
        while not done:
            observation, reward, done, truncated, info = test.step(expert.act(observation, info))
            assert not truncated
        assert info["success"] and reward == 1.0 and test.steps == least
    assert types == {"near", "far"}


def test_failures_are_deterministic_and_spread_over_siblings() -> None:
    def breaks(seed: int, action: str) -> bool:
        try:
            start(fail_rate=0.3, seed=seed).step(action)
        except EnvError:
            return True
        return False

    runs = [(seed, action) for seed in range(100) for action in ("go left", "go right")]
    first = [breaks(*r) for r in runs]
    assert first == [breaks(*r) for r in runs] and 0.2 < sum(first) / len(first) < 0.4
    assert any(first[i] != first[i + 1] for i in range(0, 200, 2))
    with pytest.raises(EnvError, match="on purpose"):
        start(fail_rate=1.0).step("go left")


def test_delay_makes_it_blocking() -> None:
    assert toy(delay=0.001).blocking and not toy().blocking


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"size": 2}, "3 to 10"),
        ({"split": "trian"}, "Did you mean 'train'"),
        ({"fail_rate": 2.0}, "fail_rate"),
        ({"rooms": 3}, "no option"),
    ],
)
def test_wrong_options_are_named(options: dict, what: str) -> None:
    with pytest.raises(EnvError, match=what):
        agentgym.make("toy", **options)


def test_unknown_tasks_are_refused() -> None:
    with pytest.raises(TaskError, match="Did you mean"):
        start("6:2-5-1x")
    with pytest.raises(EnvError, match="expert has no option"):
        toy().expert(depth=3)
