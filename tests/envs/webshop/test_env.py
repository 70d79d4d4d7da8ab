"""The environment: options, tasks, feedback, rewards, the expert, and the contract."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import registry, rollout
from agentgym.envs.webshop.env import WebShopEnv
from agentgym.errors import DataError, EnvError, TaskError
from agentgym.types import Sampling, Task


def mini(**options: Any) -> WebShopEnv:
    return WebShopEnv(**{"products": 300, "size": "mini", **options})


def play(env: WebShopEnv, task: str) -> tuple[float, int, dict[str, Any]]:
    """Let the expert play; return (return, steps, last info)."""
    observation, info = env.reset(options={"task": task})
    player, total = env.expert(), 0.0
    for steps in range(1, 60):
        observation, reward, terminated, truncated, info = env.step(player.act(observation, info))
        assert info["valid"]
        total += reward
        if terminated or truncated:
            return total, steps, info
    raise AssertionError("no end")


@pytest.mark.parametrize(
    "options", [{}, {"observation": "text_rich"}, {"observation": "html", "size": "full", "products": 50}, {"observation": "url"}]
)
def test_the_contract(options: dict[str, Any]) -> None:
    assert agentgym.check_env(lambda: mini(**options), episodes=3) == []


def test_gymnasium_makes_it_with_the_options_of_a_replay() -> None:
    env = gymnasium.make("agentgym/WebShop-v0", products=60, size="mini", observation="text_rich", feedback=False, max_steps=None)
    observation, info = env.reset(seed=3)
    assert observation.startswith("WebShop\nInstruction: \n") and info["available_actions"] == {"has_search_bar": True, "clickables": ["search"]}
    assert info["reward_info"] is None and info["url"].startswith("http://127.0.0.1:3000/")


@pytest.mark.parametrize("size", ["mini", "full"])
def test_the_expert_buys_what_was_asked_for(size: str) -> None:
    env = mini(size=size, split="test", max_steps=None)
    played = [play(env, t) for t in env.tasks()]
    assert len(played) > 15
    assert all(total == 1.0 and info["success"] and info["nouns"] == "known" for total, _, info in played)
    assert sum(steps for _, steps, _ in played) / len(played) < 8


def test_feedback_names_what_is_possible() -> None:
    env = mini()
    first, _ = env.reset(seed=0)
    observation, reward, _, _, info = env.step("click[Add to Cart]")
    assert observation == f"Not possible here: click[Add to Cart]. Possible: search[words].\n{first}" and reward == 0 and not info["valid"]
    assert info["state"] == f"{info['task_id']} {first}"  # the same state as before
    env.step("search[a]")
    observation, *_ = env.step("x" * 500 + "\n[")
    assert observation.startswith(f"Not possible here: {'x' * 60}…. Possible: search[words], click[back to search], click[next >]")
    plain = mini(feedback=False)
    first, _ = plain.reset(seed=0)
    assert plain.step("click[Add to Cart]")[0] == first


def test_an_episode_is_truncated_in_the_step_that_reaches_the_limit() -> None:
    env = mini(max_steps=3)
    env.reset(seed=0)
    assert [env.step("nonsense")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    with pytest.raises(EnvError, match="no episode is going on"):
        env.step("search[x]")


def test_rewards() -> None:
    env = mini(reward="success", scale=10.0, split="all")
    total, _, info = play(env, env.tasks()[0])
    assert total == 10.0 and info["reward_info"]["reward"] == 1.0
    for make, full in ((lambda: mini(reward="success"), 0.0), (mini, None)):
        env = make()
        env.reset(seed=1)
        env.step("search[<r>]")
        _, _, _, _, info = env.step(info_click(env))
        _, reward, terminated, _, info = env.step("click[buy now]")
        assert terminated and info["reward_info"]["reward"] < 1 and reward == (info["reward_info"]["reward"] if full is None else full)


def info_click(env: WebShopEnv) -> str:
    """Return a click on a product that is not the goal's."""
    visit = env._here
    return f"click[{next(p.asin for p in visit.page.shown if p.asin != visit.goal.asin)}]"


def test_states() -> None:
    env = mini(state="place", split="all")
    env.reset(options={"task": "generated/0"})
    player, seen = env.expert(), []
    observation, info = env.reset(options={"task": next(t for t in env.tasks() if _has_option(env, t))})
    while not info["success"]:
        seen.append((info["state"], observation))
        observation, _, _, _, info = env.step(player.act(observation, info))
    states, observations = zip(*seen, strict=True)
    assert len(set(states)) == len(seen) > len(set(observations))  # a chosen option is in the place, and not in the plain text


def _has_option(env: WebShopEnv, task: str) -> bool:
    return bool(env.task_set.find(task)[0].goal(int(task.split("/")[1])).options)


def test_instances_share_catalogue_shop_and_goals() -> None:
    one, two, other = mini(), mini(observation="text_rich"), mini(split="test")
    assert one.shop is two.shop is other.shop and one.task_set is two.task_set and one._catalogue is other._catalogue
    assert not set(one.tasks()) & set(other.tasks())


def test_a_limit_takes_the_first_of_a_split() -> None:
    every = mini(split="test").tasks()
    assert mini(split="test", limit=5).tasks() == mini(split="test", limit={"test": 5}).tasks() == every[:5]
    assert len(mini(limit={"test": 5}).tasks()) > 200
    with pytest.raises(EnvError, match=r"limit=0\): it is at least 1"):
        mini(limit=0)


def test_a_closed_episode_keeps_nothing() -> None:
    env = mini()
    env.reset(seed=0)
    env.step("search[a]")
    env.close()
    assert env._visit is None
    with pytest.raises(EnvError, match=r"call reset\(\) first"):
        env.step("search[a]")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"observation": "txt"},
            EnvError,
            r"observation='txt'\): it is one of text, text_rich, html, .* Did you mean 'text'",
        ),
        ({"size": "big"}, EnvError, "it is one of mini, full"),
        ({"max_steps": 0}, EnvError, r"max_steps=0\): it is at least 1"),
        ({"goals": "human"}, EnvError, r"goals='human'\) works only with data=FOLDER"),
        ({"replay": "x"}, EnvError, r"replay='x'\) works only with data=FOLDER"),
        ({"data": "/nowhere", "size": "mini"}, EnvError, r"size='mini'\) works only with data=None"),
        ({"data": "/nowhere"}, DataError, "the data folder /nowhere does not exist"),
        ({"data": "$NO_SUCH_VARIABLE"}, DataError, "names an environment variable that is not set"),
        ({"split": "valid"}, EnvError, "no split 'valid'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        WebShopEnv(**{"products": 60, **options})


def test_unknown_tasks_and_options_of_reset() -> None:
    env = mini()
    with pytest.raises(TaskError, match="has no task 'generated/12345'"):
        env.reset(options={"task": "generated/12345"})
    with pytest.raises(EnvError, match="has no key 'goal'"):
        env.reset(options={"goal": 1})
    with pytest.raises(EnvError, match="takes an action as text"):
        env.step(7)  # type: ignore[arg-type]


def test_a_copy_in_the_middle_of_an_episode_goes_on_by_itself() -> None:
    env = mini(split="all")
    observation, info = env.reset(seed=4)
    player = env.expert()
    for _ in range(2):
        observation, _, _, _, info = env.step(player.act(observation, info))
    data = pickle.dumps(env)
    other = pickle.loads(data)
    assert len(data) < 5_000 and other.shop is env.shop
    assert other.step("click[back to search]")[0].startswith("WebShop") and env.step("nonsense")[0].endswith(observation)
    assert copy.deepcopy(env).reset(seed=9) == env.reset(seed=9)


def test_a_trajectory_keeps_the_parts_of_the_reward() -> None:
    env = mini(split="all")
    env.reset(seed=0)
    _, _, _, _, info = env.step("search[<r>]")
    assert info["keep"] == {}
    env.step(info_click(env))
    _, _, _, _, info = env.step("click[buy now]")
    assert info["keep"] == {"reward_info": info["reward_info"], "nouns": "known"}


def test_a_step_of_a_trajectory_has_what_the_environment_keeps() -> None:
    env = mini(split="all")
    agent = rollout.Agent(registry.find("policy", "expert")(), registry.bind("context", "full"), registry.bind("action", "plain"), Sampling())
    played = asyncio.run(rollout.play(agent, env, Task("generated/0", "webshop", "all", seed=0), group="g", seed=0))
    assert played.success and [bool(s.info) for s in played.steps] == [False] * (len(played.steps) - 1) + [True]
    assert played.steps[-1].info["reward_info"]["reward"] == 1.0
