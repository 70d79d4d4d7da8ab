"""scripted, random, expert: policies without weights, played against the toy environment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentgym import registry
from agentgym.env import TextEnv, make
from agentgym.errors import AgentGymError, ConfigError, EnvError, PolicyError
from agentgym.policy import Policy, Request
from agentgym.trainers.policy.expert import expert
from agentgym.trainers.policy.random import random
from agentgym.trainers.policy.scripted import scripted
from agentgym.types import Completion, Sampling


def ask(policy: Policy, episode: str = "a", seed: int = 0, **fields: Any) -> Completion:
    return asyncio.run(policy.complete(Request(episode, seed, **fields), Sampling()))


def test_all_are_found_by_name_and_read_text() -> None:
    for name, options in {"scripted": {"actions": ["look"]}, "random": {"seed": 3}, "expert": {"noise": 0.5}}.items():
        policy = registry.bind("policy", name, options)()
        assert isinstance(policy, Policy) and policy.wants == "text"
        policy.load(None, 1)
        asyncio.run(policy.close())
    with pytest.raises(ConfigError, match="needs the option 'actions'"):
        registry.bind("policy", "scripted")
    with pytest.raises(ConfigError, match="actions: got 'look'"):
        registry.bind("policy", "scripted", {"actions": "look"})


def test_scripted_plays_each_episode_from_the_start() -> None:
    policy = scripted(actions=["north", "south"])
    assert [ask(policy, e).text for e in "aabaa"] == ["north", "south", "north", "north", "south"]
    policy.release("b")
    assert ask(policy, "b").text == "north" and ask(policy, "a").text == "north"
    assert ask(policy).tokens is None
    with pytest.raises(ConfigError, match="actions is empty"):
        scripted(actions=[])


def test_scripted_takes_a_function_in_code() -> None:
    assert ask(scripted(actions=lambda request: request.observation.upper()), observation="look").text == "LOOK"


def test_random_draws_admissible_actions_by_seed() -> None:
    info = {"admissible": ["a", "b", "c"]}
    draws = [ask(random(), seed=s, info=info).text for s in range(60)]
    assert set(draws) == {"a", "b", "c"}
    assert draws == [ask(random(), episode="other", seed=s, info=info).text for s in range(60)]
    assert draws != [ask(random(seed=1), seed=s, info=info).text for s in range(60)]
    with pytest.raises(PolicyError, match=r"needs info\['admissible'\].*info has: state"):
        ask(random(), info={"state": "x"})


def play(policy: Policy, env: TextEnv, task: str) -> bool:
    observation, info = env.reset(options={"task": task})
    for turn in range(100):
        c = ask(policy, task, turn, observation=observation, info=info, env=env)
        observation, _, terminated, truncated, info = env.step(c.text)
        if terminated or truncated:
            break
    policy.release(task)
    return bool(info["success"])


def test_expert_wins_and_keeps_one_player_per_episode() -> None:
    policy, env = expert(), make("toy")
    assert all(play(policy, env, t) for t in env.tasks()[:5])
    assert not policy._players
    env.reset(options={"task": env.tasks()[0]})
    observation, info = env.reset(seed=0)
    ask(policy, "a", observation=observation, info=info, env=env)
    player = policy._players["a"]
    ask(policy, "a", observation=observation, info=info, env=env)
    assert policy._players == {"a": player}


def test_expert_says_what_it_cannot_do() -> None:
    env = make("toy")
    observation, info = env.reset(seed=0)
    with pytest.raises(PolicyError, match=r"needs request\.env"):
        ask(expert(), observation=observation, info=info)
    with pytest.raises(AgentGymError, match="planner"):
        ask(expert(planner=True), observation=observation, info=info, env=env)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        expert(noise=2.0)

    class NoExpert(TextEnv): ...

    with pytest.raises(EnvError, match="NoExpert has no expert"):
        ask(expert(), env=NoExpert())

    class Plain(TextEnv):
        def expert(self) -> Any:  # type: ignore[override]
            raise AssertionError("must not be reached with options that it does not take")

    with pytest.raises(PolicyError, match="expert of Plain cannot honour noise, seed"):
        ask(expert(noise=0.1), env=Plain())
