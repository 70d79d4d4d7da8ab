"""Episodes that begin at a decision: the same context as in the whole episode, nothing of it learned, and cut after so many turns."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from agentgym import registry
from agentgym.branch import Start, start_of
from agentgym.context import Turn
from agentgym.env import TextEnv, make
from agentgym.errors import ConfigError, EnvError, PolicyError
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym, collect, play
from agentgym.trainers.batch import pack
from agentgym.trainers.explore.branch import branch
from agentgym.trainers.policy.expert import expert
from agentgym.trainers.policy.scripted import scripted
from agentgym.trainers.reward.functional_text import functional_text
from agentgym.trainers.tokenizer import build_tokenizer
from agentgym.types import Sampling, Status, Task, Trajectory

CHATML = """{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
CONTEXTS: list[tuple[str, dict[str, Any]]] = [
    ("full", {}),
    ("full", {"admissible": True, "system": "Play."}),
    ("window", {"size": 2}),
    ("markov", {}),
]


@pytest.fixture(scope="module", params=["tiny", "chatml"])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    env = make("toy", size=4)
    tokenizer = build_tokenizer([env.reset(seed=i)[0] for i in range(9)] + ["go left go right take key open door"], vocab=320, max_length=4096)
    if request.param == "chatml":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"})
        tokenizer.chat_template = CHATML
    return Renderer(tokenizer)


def agent_of(policy: Any, renderer: Renderer | None = None, context: str = "full", options: dict[str, Any] | None = None, **rest: Any) -> Agent:
    return Agent(policy, registry.bind("context", context, options or {}), registry.bind("action", "plain"), Sampling(), renderer, **rest)


def whole(agent: Agent, **options: Any) -> Trajectory:
    """Let the agent play a whole episode of the toy environment: left, take, right, right, right, open."""
    env = make("toy", size=4, **options)
    out = asyncio.run(play(agent, env, Task("4:1-0-3", "toy", "train", seed=7), group="g", seed=0))
    assert not out.failed, out.error
    return out


@pytest.fixture(scope="module")
def demonstration() -> Trajectory:
    out = whole(agent_of(expert()))
    assert out.success and [s.action for s in out.steps] == ["go left", "take key", *["go right"] * 3, "open door"]
    return out


def admissible_of(t: Trajectory) -> list[list[str]]:
    env = make("toy", size=4)
    _, info = env.reset(seed=t.task.seed, options={"task": t.task.id})
    found = [info["admissible"]]
    for step in t.steps[:-1]:
        found.append(env.step(step.action)[4]["admissible"])
    return found


def pivot(t: Trajectory, i: int, **data: Any) -> Task:
    """The task of the i-th decision of an episode."""
    turns = [Turn(s.observation, a, s.completion.text, s.action) for s, a in zip(t.steps, admissible_of(t), strict=True)]
    start = Start(tuple(turns[:i]), Turn(turns[i].observation, turns[i].admissible), {"state": t.steps[i].state, "task_type": t.info["task_type"]})
    after = [*(s.observation for s in t.steps[1:]), t.final_observation][i]
    return dataclasses.replace(t.task, data={"start": start.to_data() | data, "expected": {"action": t.steps[i].action, "observation": after}})


def from_pivot(
    task: Task, agent: Agent, make_env: Callable[[], TextEnv] = lambda: make("toy", size=4), size: int = 1, **options: Any
) -> list[Trajectory]:
    async def work() -> list[Trajectory]:
        explore = registry.bind("explore", "branch", options)
        return (await collect(Gym(make_env, concurrency=4), agent, [("p", task, 1)], explore, size=size))[0]

    return asyncio.run(work())


# ------------------------------------------------------------------------------------------------------------- the same context


@pytest.mark.parametrize("how", ["replay", "context"])
@pytest.mark.parametrize("context, options", CONTEXTS, ids=["full", "full with all", "window", "markov"])
def test_the_context_is_that_of_the_whole_episode(
    how: str, context: str, options: dict[str, Any], renderer: Renderer, demonstration: Trajectory
) -> None:
    agent = agent_of(scripted(actions=[s.action for s in demonstration.steps]), renderer, context, options)
    full = whole(agent)
    stream: list[int] = []
    for i, step in enumerate(full.steps):
        stream = list(step.prompt) if step.new_segment else stream + step.prompt
        (episode,) = from_pivot(pivot(full, i), agent_of(scripted(actions=[step.action]), renderer, context, options), start=how)
        (first,) = episode.steps
        assert first.prompt == stream and first.new_segment
        assert first.completion.tokens == step.completion.tokens and first.observation == step.observation
        assert (first.state, first.action, first.valid) == (step.state, step.action, True)
        stream += step.completion.tokens or []
        batch = pack([episode], discount=1.0)
        assert batch.token.tolist() == stream and batch.n_segments == 1  # the past is read, only the one action is learned from
        assert batch.token[batch.sampled].tolist() == step.completion.tokens
        assert episode.info["task_type"] == full.info["task_type"]


def test_a_policy_on_text_reads_the_same_messages(demonstration: Trajectory) -> None:
    def messages(play_it: Callable[[Agent], Any]) -> list[list[Any]]:
        asked: list[list[Any]] = []

        def act(request: Request) -> str:
            asked.append(request.messages)
            return demonstration.steps[(len(asked) - 1) % 6].action

        play_it(agent_of(scripted(actions=act), None, "window"))
        return asked

    full = messages(whole)
    for how in ("replay", "context"):
        assert messages(lambda a, how=how: from_pivot(pivot(demonstration, 4), a, start=how)) == [full[4]]  # type: ignore[misc]


def test_a_goal_of_its_own_is_kept(demonstration: Trajectory) -> None:
    """Where the environment names no goal it is the first observation, not the one at the decision."""
    seen: list[str] = []

    def context(goal: str, history: list[Turn], now: Turn) -> list[Any]:
        seen.append(goal)
        return []

    for how in ("replay", "context"):
        agent = dataclasses.replace(agent_of(scripted(actions=["wait"])), context=context)
        assert not from_pivot(pivot(demonstration, 3), agent, start=how)[0].failed
    assert set(seen) == {demonstration.steps[0].observation}


# ------------------------------------------------------------------------------------------------------------------ the episode


def test_it_is_cut_after_its_turns(demonstration: Trajectory) -> None:
    actions = ["go right", "go left"]
    for turns in (1, 2, 5):
        (out,) = from_pivot(pivot(demonstration, 2), agent_of(scripted(actions=actions)), turns=turns)
        assert len(out.steps) == turns and out.status is Status.TRUNCATED and out.outcome == 0.0 and not out.success
    assert [s.observation for s in out.steps[1:3]] == ["You go right. You are in the kitchen. You have the key.", out.steps[0].observation.replace(
        "You take the key.", "You go left.")]  # fmt: skip


@pytest.mark.parametrize("env_reward", [False, True])
def test_the_environments_end_is_an_end_and_its_reward_is_left_out_unless_asked_for(env_reward: bool, demonstration: Trajectory) -> None:
    agent = agent_of(scripted(actions=["open door"]), rewards={"func": functional_text})
    (out,) = from_pivot(pivot(demonstration, 5), agent, turns=3, env_reward=env_reward)
    assert out.status is Status.TERMINATED and len(out.steps) == 1 and out.final_observation == "The door opens. You win." and out.success
    assert out.rewards == {"env": float(env_reward), "func": 1.0} and out.outcome == 1.0 + env_reward
    (wrong,) = from_pivot(pivot(demonstration, 5), dataclasses.replace(agent, policy=scripted(actions=["go left"])), env_reward=env_reward)
    assert wrong.outcome == 0.0 and not wrong.success and wrong.status is Status.TRUNCATED


def test_a_stored_context_needs_no_environment(demonstration: Trajectory) -> None:
    def none() -> TextEnv:
        raise AssertionError("an environment was made")

    agent = agent_of(scripted(actions=["go right"]), rewards={"func": functional_text})
    (out,) = from_pivot(pivot(demonstration, 3), agent, none, start="context")
    assert (out.status, out.final_observation, out.outcome, out.success) == (Status.TRUNCATED, "", 1.0, True)
    assert out.steps[0].reward == 1.0 and out.steps[0].state == demonstration.steps[3].state
    (other,) = from_pivot(pivot(demonstration, 3), dataclasses.replace(agent, policy=scripted(actions=["open door"])), none, start="context")
    assert other.outcome == 0.0 and not other.success


def test_environments_are_used_again_and_wait_in_threads_where_they_block(demonstration: Trajectory) -> None:
    made = []

    def blocking() -> TextEnv:
        made.append(1)
        return make("toy", size=4, delay=0.001)

    out = from_pivot(pivot(demonstration, 5), agent_of(scripted(actions=["open door"])), blocking, size=12)
    assert len(out) == 12 and not any(t.failed for t in out) and len(made) == 4


def test_the_way_there_may_take_as_long_as_its_steps(demonstration: Trajectory) -> None:
    async def work(timeout: float) -> Trajectory:
        env = make("toy", size=4, delay=0.05)
        task = pivot(demonstration, 5, how="replay", turns=1, env_reward=False)
        return await play(agent_of(scripted(actions=["open door"])), env, task, group="p", seed=0, timeout=timeout)

    assert not asyncio.run(work(0.2)).failed  # 0.25 s in all
    assert "gave no answer within" in str(asyncio.run(work(0.02)).error)


# -------------------------------------------------------------------------------------------------------------- what goes wrong


def failure(task: Task, **env: Any) -> str:
    with pytest.raises(PolicyError, match="all 1 episodes failed") as e:
        from_pivot(task, agent_of(scripted(actions=["wait"])), lambda: make("toy", size=4, **env))
    return str(e.value)


def test_a_replay_that_differs_says_where(demonstration: Trajectory) -> None:
    def changed(i: int, text: str) -> Task:
        task = pivot(demonstration, 4)
        start = task.data["start"]
        turns = [*start["history"], start["now"]]
        turns[i]["observation"] = text
        return task

    assert "EnvError: replay: after reset the environment shows 'Your task" in failure(changed(0, "Elsewhere."))
    said = failure(changed(3, "You fly."))
    assert "replay: after action 3 of 4 ('go right') the environment shows 'You go right." in said and "recorded was 'You fly.'" in said
    assert "replay: after action 4 of 4 ('go right') the environment shows" in failure(changed(4, "You fly."))
    assert "replay: action 4 of 4 ('go right') ended the episode" in failure(pivot(demonstration, 4), max_steps=4)


def test_what_explore_refuses(demonstration: Trajectory) -> None:
    agent = agent_of(scripted(actions=["wait"]))
    with pytest.raises(ConfigError, match=r"task '4:1-0-3' carries none.*sampler 'pivots'.*agentgym pivots"):
        from_pivot(demonstration.task, agent)
    for options in ({"turns": 2}, {"env_reward": True}):
        with pytest.raises(ConfigError, match="start=context has no environment"):
            from_pivot(pivot(demonstration, 1), agent, start="context", **options)
    with pytest.raises(ConfigError, match=r"explore\.turns is 0"):
        from_pivot(pivot(demonstration, 1), agent, turns=0)
    with pytest.raises(ConfigError, match="expected"):
        registry.bind("explore", "branch", {"start": "jump"})
    assert branch.__name__ == "branch"


def test_a_start_that_is_none() -> None:
    with pytest.raises(EnvError, match=r"no start of an episode.*history, now and info"):
        start_of(Task("t", "toy", "train", data={"start": {"how": "replay"}}))
    out = asyncio.run(play(agent_of(scripted(actions=["x"])), None, Task("t", "toy", "train"), group="g", seed=0))
    assert out.status is Status.ERROR and "needs an environment" in str(out.error)


def test_a_start_sleeps_until_somebody_branches(demonstration: Trajectory) -> None:
    """A stage that plays whole episodes may draw the same tasks."""
    env = make("toy", size=4)
    out = asyncio.run(play(agent_of(expert()), env, pivot(demonstration, 4), group="g", seed=0))
    assert len(out.steps) == 6 and out.success and out.rewards == {"env": 1.0}


def test_plain_data_mean_the_same_start(demonstration: Trajectory) -> None:
    data = pivot(demonstration, 2).data["start"]
    assert Start.of(data).to_data() == data and Start.of(data, turns=3).turns == 3
