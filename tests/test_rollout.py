"""LOOP 1: tokens in, tokens out; each episode for itself; what breaks is counted and stops nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from agentgym import registry
from agentgym.env import TextEnv, make
from agentgym.errors import DataError, EnvError, PolicyError
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym, collect
from agentgym.trainers.batch import pack
from agentgym.trainers.explore.independent import independent
from agentgym.trainers.policy.expert import expert
from agentgym.trainers.policy.scripted import scripted
from agentgym.trainers.tokenizer import build_tokenizer
from agentgym.types import Completion, Sampling, Status, Task, Trajectory

# The template of Qwen3 in what matters here: ChatML, a think block that is cut out of earlier turns, one that is put into the prompt.
CHATML = """{%- for m in messages -%}
{%- set content = m.content -%}
{%- if m.role == 'assistant' and '</think>' in content and not loop.last -%}
{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}{%- endif -%}
{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}"""


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    env = make("toy", size=3)
    return build_tokenizer([env.reset(seed=i)[0] for i in range(9)] + ["go left go right take key open door"], vocab=320, max_length=4096)


def chatml_tokenizer() -> PreTrainedTokenizerFast:
    out = tiny_tokenizer()
    out.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"})
    out.chat_template = CHATML
    return out


@pytest.fixture(params=["tiny", "chatml", "chatml, no thinking"])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    if request.param == "tiny":
        return Renderer(tiny_tokenizer())
    return Renderer(chatml_tokenizer(), options={"enable_thinking": False} if "no" in request.param else {})


class Typist:
    """A policy that writes given ids, and keeps the context that it was asked with."""

    wants = "tokens"

    def __init__(self, renderer: Renderer, turns: Sequence[list[int]]) -> None:
        self.renderer, self.turns = renderer, turns
        self.asked: list[list[int]] = []
        self.released: list[str] = []

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        ids = self.turns[len(self.asked) % len(self.turns)]
        self.asked.append(list(request.tokens))
        finish = "stop" if ids and ids[-1] in self.renderer.stop_ids else "length"
        return Completion(self.renderer.decode(ids), list(ids), [-1.0] * len(ids), finish, version=5)  # type: ignore[arg-type]

    def release(self, episode: str) -> None:
        self.released.append(episode)

    def load(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...


def agent_of(policy: Any, renderer: Renderer | None = None, *, context: str = "full", action: str = "plain", **options: Any) -> Agent:
    return Agent(policy, registry.bind("context", context), registry.bind("action", action), Sampling(), renderer, **options)


def toy_tasks(n: int, **options: Any) -> list[Task]:
    return [Task(i, "toy", "train", seed=s) for s, i in enumerate(make("toy", **options).tasks()[:n])]


def play_all(gym: Gym, agent: Agent, tasks: Sequence[Task], size: int = 1, **kwargs: Any) -> list[list[Trajectory]]:
    async def work() -> list[list[Trajectory]]:
        return await collect(gym, agent, [(f"g{i}", t, i) for i, t in enumerate(tasks)], independent, size=size, **kwargs)

    try:
        return asyncio.run(work())
    finally:
        gym.close()


def toy_gym(concurrency: int = 8, timeout: float = 60.0, **options: Any) -> Gym:
    return Gym(lambda: make("toy", **options), concurrency=concurrency, timeout=timeout)


# ---------------------------------------------------------------------------------------------------- tokens in, tokens out


def turns_of(renderer: Renderer) -> list[list[int]]:
    """Ended and cut-off completions, a special token in the middle, and ids that their own text would not give again."""
    tok = renderer.tokenizer
    letters = [tok.convert_tokens_to_ids(c) for c in "left"]  # bytes where the tokenizer itself would take one word
    word = renderer.encode_completion("go left")
    assert tok.encode(renderer.decode(letters), add_special_tokens=False) != letters
    broken = [tok.convert_tokens_to_ids("Ã")]  # half a character: its text is a replacement mark
    return [word, letters, broken, [*letters, renderer.end_id], word[:-1], [*word[:-1], *broken, renderer.end_id]]


def test_prompts_and_completions_are_the_context(renderer: Renderer) -> None:
    turns = turns_of(renderer)
    policy = Typist(renderer, turns)
    ((episode,),) = play_all(toy_gym(size=3, max_steps=6), agent_of(policy, renderer), toy_tasks(1, size=3))
    assert not episode.failed and len(episode.steps) == 6
    context: list[int] = []
    for step, asked, written in zip(episode.steps, policy.asked, turns, strict=True):
        context += step.prompt
        assert context == asked  # what was asked is what was stored
        assert step.completion.tokens == written and step.completion.version == 5
        context += written
    assert [s.new_segment for s in episode.steps] == [True, *[False] * 5]

    batch = pack([episode], discount=1.0)
    assert batch.token.tolist() == context and batch.n_segments == 1 and batch.position.tolist() == list(range(len(context)))
    assert batch.token[batch.sampled].tolist() == [t for turn in turns for t in turn]  # trained on what was sampled, on nothing else
    assert set(batch.version[batch.sampled].tolist()) == {5} and policy.released == ["g0/0"]


def test_between_the_turns_stands_what_the_template_says(renderer: Renderer) -> None:
    end = renderer.tokenizer.decode([renderer.end_id])
    policy = Typist(renderer, [renderer.encode_completion("take key"), renderer.encode_completion("take key")[:-1]])
    ((episode,),) = play_all(toy_gym(size=3, max_steps=3), agent_of(policy, renderer), toy_tasks(1, size=3))
    second, third = (renderer.tokenizer.decode(s.prompt) for s in episode.steps[1:])
    assert not second.startswith(end) and third.startswith(end)  # a turn that was cut off is ended by the context, not by the model
    for text, step in ((second, episode.steps[1]), (third, episode.steps[2])):
        assert step.observation in text and text.count("assistant") == 1
    chat = [{"role": "user", "content": episode.steps[0].observation}]
    text = renderer.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **renderer.options)
    assert policy.asked[0] == renderer.tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("context", ["window", "markov"])
def test_a_rebuilt_context_is_a_segment_per_step(context: str, renderer: Renderer) -> None:
    policy = Typist(renderer, turns_of(renderer))
    ((episode,),) = play_all(toy_gym(size=3, max_steps=4), agent_of(policy, renderer, context=context), toy_tasks(1, size=3))
    assert [s.new_segment for s in episode.steps] == [True] * 4
    assert [s.prompt for s in episode.steps] == policy.asked
    batch = pack([episode], discount=1.0)
    assert batch.n_segments == 4 and batch.segment[batch.position == 0].tolist() == [0, 1, 2, 3]


def test_a_text_policy_is_encoded_once(renderer: Renderer) -> None:
    ((episode,),) = play_all(toy_gym(size=3, max_steps=9), agent_of(expert(), renderer), toy_tasks(1, size=3))
    assert episode.success and all(s.completion.tokens == renderer.encode_completion(s.completion.text) for s in episode.steps)
    assert pack([episode], discount=1.0).logp_old is None


def test_without_a_renderer_an_episode_is_text() -> None:
    ((episode,),) = play_all(toy_gym(size=3), agent_of(expert()), toy_tasks(1, size=3))
    assert episode.success and all(s.prompt == [] and s.completion.tokens is None for s in episode.steps)
    with pytest.raises(DataError, match="text but no token ids"):
        pack([episode], discount=1.0)


def test_the_context_is_told_what_the_action_format_wants() -> None:
    seen: list[str] = []
    policy = scripted(actions=lambda r: seen.append(r.messages[-1].content) or "x")  # type: ignore[func-returns-value]
    for own in ({}, {"instruction": "Answer me."}, {"instruction": ""}):
        agent = Agent(policy, registry.bind("context", "full", own), registry.bind("action", "tags"), Sampling())
        play_all(toy_gym(size=3, max_steps=1), agent, toy_tasks(1, size=3))
    assert seen[0].endswith("inside <action> </action>.") and seen[1].endswith("\nAnswer me.") and "<action>" not in seen[2]

    agent = Agent(
        policy, lambda goal, history, now: registry.find("context", "full")(goal, history, now), registry.bind("action", "tags"), Sampling()
    )
    ((episode,),) = play_all(toy_gym(size=3, max_steps=1), agent, toy_tasks(1, size=3))
    assert not episode.failed, episode.error  # a context of one's own need not know the option


# ---------------------------------------------------------------------------------------------- status, rewards, penalties


def test_truncated_is_not_terminated(renderer: Renderer) -> None:
    task = next(t for t in toy_tasks(9, size=3) if t.id.split(":")[1][0] != t.id[-1])  # the door is elsewhere
    ((cut,),) = play_all(toy_gym(size=3, max_steps=3), agent_of(scripted(actions=["wait"]), renderer), [task])
    ((won,),) = play_all(toy_gym(size=3), agent_of(expert(), renderer), [task])
    assert (cut.status, cut.success, cut.outcome, len(cut.steps)) == (Status.TRUNCATED, False, 0.0, 3)
    assert (won.status, won.success, won.outcome) == (Status.TERMINATED, True, 1.0)
    batch = pack([cut, won], discount=1.0)
    assert batch.truncated.tolist() == [True, False] and batch.success.tolist() == [False, True]
    assert cut.final_observation.startswith("Nothing happens.") and won.final_observation == "The door opens. You win."


def test_the_penalty_lands_on_the_step_that_was_invalid(renderer: Renderer) -> None:
    class then_wins(expert):
        async def complete(self, request: Request, sampling: Sampling) -> Completion:
            out = await super().complete(request, sampling)
            return Completion("dance") if request.observation.startswith("Your task") else out

    task = toy_tasks(1, size=3)[0]
    ((episode,),) = play_all(toy_gym(size=3), agent_of(then_wins(), renderer, invalid_penalty=0.25), [task])
    assert [s.valid for s in episode.steps] == [False] + [True] * (len(episode.steps) - 1)
    assert [s.penalty for s in episode.steps] == [-0.25] + [0.0] * (len(episode.steps) - 1)
    assert episode.outcome == 1.0 == sum(s.reward for s in episode.steps)  # the penalty is in neither
    batch = pack([episode], discount=1.0)
    batch.set_advantage(batch.step_return)
    assert [round(a, 6) for a in batch.advantage_of_steps()[0]] == [0.75] + [1.0] * (len(episode.steps) - 1)  # type: ignore[index]


def test_a_broken_format_is_invalid_though_the_environment_might_not_say_so() -> None:
    policy = scripted(actions=["<think>x</think><action>wait</action>", "go left"])
    ((episode,),) = play_all(toy_gym(size=3, max_steps=2), agent_of(policy, action="tags", invalid_penalty=1.0), toy_tasks(1, size=3))
    assert [(s.action, s.valid, s.penalty) for s in episode.steps] == [("wait", False, -1.0), ("go left", False, -1.0)]


def test_reward_parts_are_added_to_the_last_step_and_the_outcome() -> None:
    rewards = {"bonus": registry.bind("reward", "success", {"scale": 2.0}), "cost": registry.bind("reward", "steps", {"cost": 0.5})}
    ((episode,),) = play_all(toy_gym(size=3), agent_of(expert(), rewards=rewards), toy_tasks(1, size=3))
    n = len(episode.steps)
    assert episode.rewards == {"env": 1.0, "bonus": 2.0, "cost": -0.5 * n}
    assert episode.outcome == 3.0 - 0.5 * n == episode.steps[-1].reward
    assert all(s.reward == 0 for s in episode.steps[:-1])


def test_the_state_is_that_in_which_the_action_was_taken() -> None:
    task = toy_tasks(1, size=3)[0]
    ((episode,),) = play_all(toy_gym(size=3), agent_of(expert()), [task])
    env = make("toy", size=3)
    _, info = env.reset(seed=task.seed, options={"task": task.id})
    for step in episode.steps:
        assert step.state == info["state"]
        *_, info = env.step(step.action)


# -------------------------------------------------------------------------------------------------------- what breaks


def test_a_broken_episode_is_data_and_its_siblings_finish(renderer: Renderer) -> None:
    script = scripted(actions=lambda r: ["go left", "go right", "take key", "x"][r.seed % 4] if "Your task" in r.observation else "open door")
    groups = play_all(toy_gym(size=3, max_steps=3, fail_rate=0.5), agent_of(script, renderer), toy_tasks(4, size=3), size=6)
    played = [t for g in groups for t in g]
    broken = [t for t in played if t.failed]
    assert len(played) == 24 and 0 < len(broken) < 24
    for t in broken:
        assert t.status is Status.ERROR and t.error and t.error.startswith("EnvError: toy: episode of task") and not t.success and t.outcome == 0
    assert all(t.status is not Status.ERROR and t.error is None for t in played if t not in broken)
    batch = pack(played, discount=1.0)
    assert batch.failed == len(broken) and batch.n_trajectories == 24 - len(broken)  # never in a batch
    again = play_all(toy_gym(size=3, max_steps=3, fail_rate=0.5), agent_of(script, renderer), toy_tasks(4, size=3), size=6)
    assert [[t.status for t in g] for g in again] == [[t.status for t in g] for g in groups]


def test_when_all_break_the_run_ends_with_the_reason() -> None:
    with pytest.raises(PolicyError, match=r"all 6 episodes failed; the first: EnvError: toy: episode of task '3:.*broke on purpose"):
        play_all(toy_gym(size=3, fail_rate=1.0), agent_of(scripted(actions=["x"])), toy_tasks(2, size=3), size=3)


def test_an_environment_that_cannot_be_made_is_said() -> None:
    with pytest.raises(PolicyError, match="all 2 episodes failed; the first: EnvError: toy: size is 99"):
        play_all(toy_gym(size=99), agent_of(scripted(actions=["x"])), toy_tasks(2, size=3))


def test_a_bug_keeps_its_traceback() -> None:
    def buggy(trajectory: Trajectory) -> float:
        raise ZeroDivisionError("in my reward")

    with pytest.raises(PolicyError, match=r"(?s)all 1 episodes failed; the first: ZeroDivisionError: in my reward.*Traceback.*in buggy"):
        play_all(toy_gym(size=3), agent_of(expert(), rewards={"mine": buggy}), toy_tasks(1, size=3))


def test_a_failing_policy_breaks_its_episode_only() -> None:
    def sometimes(request: Request) -> str:
        if request.episode == "g1/1000003":
            raise PolicyError("the endpoint is down")
        return "x"

    groups = play_all(toy_gym(size=3, max_steps=2), agent_of(scripted(actions=sometimes)), toy_tasks(3, size=3))
    assert [g[0].status for g in groups] == [Status.TRUNCATED, Status.ERROR, Status.TRUNCATED]
    assert groups[1][0].error == "PolicyError: the endpoint is down"


# ------------------------------------------------------------------------------------------------- blocking environments


class slow(TextEnv):
    """Steps that wait; `hang` hangs. Counts who is inside at once."""

    blocking = True
    inside = most = made = closed = 0
    lock = threading.Lock()
    gate = threading.Event()

    def __init__(self, delay: float = 0.05, steps: int = 1) -> None:
        super().__init__()
        self.delay, self.steps = delay, steps
        type(self).made += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.n = 0
        return "go", {"state": "s", "success": False, "valid": True}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        kind = type(self)
        with self.lock:
            kind.inside += 1
            kind.most = max(kind.most, kind.inside)
        try:
            if action == "hang":
                self.gate.wait(60)
            if action == "exit":
                raise SystemExit("the game quit")
            time.sleep(self.delay)
        finally:
            with self.lock:
                kind.inside -= 1
        self.n += 1
        return "done", 1.0, self.n >= self.steps, False, {"state": "s", "success": True, "valid": True}

    def close(self) -> None:
        type(self).closed += 1
        if type(self).gate.is_set():
            return
        if self.delay == 9.0:  # one that hangs on closing, too
            self.gate.wait(60)


@pytest.fixture
def fresh() -> Any:
    slow.inside = slow.most = slow.made = slow.closed = 0
    slow.gate = threading.Event()
    yield slow
    slow.gate.set()  # let the hanging threads go


def test_as_many_run_at_once_as_there_are_places(fresh: type[slow]) -> None:
    started = time.monotonic()
    groups = play_all(Gym(lambda: slow(0.2), concurrency=48), agent_of(scripted(actions=["x"])), toy_tasks(1), size=96)
    took = time.monotonic() - started
    assert all(t.success for t in groups[0])
    assert fresh.most > 40  # asyncio's own pool would let cores + 4 in
    assert fresh.most <= 48 and fresh.made <= 48 and fresh.closed == fresh.made
    assert took < 3  # two rounds of 0.2 s, not 96


def test_a_hanging_step_is_a_time_out_and_no_hang(fresh: type[slow]) -> None:
    script = scripted(actions=lambda r: "hang" if r.episode.endswith("/0") else "x")
    started = time.monotonic()
    groups = play_all(Gym(lambda: slow(0.01), concurrency=2, timeout=0.3), agent_of(script), toy_tasks(1), size=8)
    assert time.monotonic() - started < 3  # nor does the end wait for the thread
    broken = [t for t in groups[0] if t.failed]
    assert [t.error for t in broken] == ["EnvError: slow.step gave no answer within 0.3 s"] and len(groups[0]) == 8
    assert all(t.success for t in groups[0] if not t.failed)


def test_hangs_use_up_no_places(fresh: type[slow]) -> None:
    script = scripted(actions=lambda r: "hang" if int(r.episode.split("/")[1]) < 3 else "x")
    groups = play_all(Gym(lambda: slow(0.01), concurrency=1, timeout=0.2), agent_of(script), toy_tasks(1), size=6)
    assert [t.failed for t in groups[0]] == [True] * 3 + [False] * 3


def test_an_environment_that_hangs_on_closing_holds_nobody_up(fresh: type[slow]) -> None:
    script = scripted(actions=["hang"])
    started = time.monotonic()
    with pytest.raises(PolicyError, match="gave no answer"):
        play_all(Gym(lambda: slow(9.0), concurrency=1, timeout=0.2), agent_of(script), toy_tasks(1), size=2)
    assert time.monotonic() - started < 3 and fresh.closed == 2


def test_an_environment_that_exits_does_not_take_the_run_along(fresh: type[slow]) -> None:
    script = scripted(actions=lambda r: "exit" if r.episode.endswith("/0") else "x")
    groups = play_all(Gym(lambda: slow(0.01), concurrency=2), agent_of(script), toy_tasks(1), size=2)
    assert [t.error for t in groups[0]] == ["EnvError: the environment raised SystemExit: the game quit", None]


def test_a_time_out_of_the_environments_own_keeps_its_words(fresh: type[slow]) -> None:
    class remote(slow):
        def step(self, action: str) -> Any:
            raise TimeoutError("the server at :80")

    with pytest.raises(PolicyError, match="TimeoutError: the server at :80"):
        play_all(Gym(lambda: remote(), concurrency=1), agent_of(scripted(actions=["x"])), toy_tasks(1))


def test_errors_of_a_blocking_environment_travel(fresh: type[slow]) -> None:
    groups = play_all(toy_gym(size=3, max_steps=2, delay=0.001, fail_rate=0.5), agent_of(scripted(actions=["x"])), toy_tasks(6, size=3))
    kinds = {t.error.split(":")[0] for g in groups for t in g if t.error}
    assert kinds == {"EnvError"} and any(not t.failed for g in groups for t in g)


# -------------------------------------------------------------------------------------------------------------- the gym


def test_more_episodes_than_places() -> None:
    made: list[TextEnv] = []
    alive, most = set(), 0

    def make_env() -> TextEnv:
        made.append(make("toy", size=3, max_steps=3))
        return made[-1]

    class watched(scripted):
        async def complete(self, request: Request, sampling: Sampling) -> Completion:
            nonlocal most
            alive.add(request.episode)
            most = max(most, len(alive))
            await asyncio.sleep(0)
            return Completion("x")

        def release(self, episode: str) -> None:
            alive.discard(episode)

    ticks: list[tuple[int, int]] = []
    gym = Gym(make_env, concurrency=3)
    groups = play_all(gym, agent_of(watched(actions=["x"])), toy_tasks(5, size=3), size=4, progress=lambda *a: ticks.append(a))
    assert len(made) == 3 and most == 3 and not alive
    assert [len(g) for g in groups] == [4] * 5 and [g[0].task.id for g in groups] == [t.id for t in toy_tasks(5, size=3)]
    assert ticks == [(i, 20) for i in range(1, 21)]
    with pytest.raises(EnvError, match="concurrency must be at least 1, got 0"):
        Gym(make_env, concurrency=0)


def test_a_finished_episode_frees_its_place_at_once(fresh: type[slow]) -> None:
    """Two places, one of them taken by a long episode: the short ones go through the other, and nobody waits for the slowest."""
    order: list[str] = []

    class watched(scripted):
        def release(self, episode: str) -> None:
            order.append(episode.split("/")[0])

    def make_env() -> TextEnv:
        return slow(0.01, steps=30 if slow.made == 0 else 1)  # the first one made plays long

    tasks = toy_tasks(9)
    play_all(Gym(make_env, concurrency=2), agent_of(watched(actions=["x"])), tasks)
    assert order == [f"g{i}" for i in range(1, 9)] + ["g0"]


def test_a_broken_environment_is_not_used_again() -> None:
    made: list[Any] = []

    class once(slow):
        blocking = False

        def step(self, action: str) -> Any:
            if made.index(self) == 0:
                raise EnvError("gone")
            return super().step(action)

        def close(self) -> None:
            made[made.index(self)].shut = True

    def make_env() -> TextEnv:
        made.append(once(0.0))
        return made[-1]

    groups = play_all(Gym(make_env, concurrency=1), agent_of(scripted(actions=["x"])), toy_tasks(3))
    assert [g[0].failed for g in groups] == [True, False, False] and len(made) == 2 and all(e.shut for e in made)


def test_cancelling_closes_what_is_at_work(fresh: type[slow]) -> None:
    gym = Gym(lambda: slow(0.01, steps=10_000), concurrency=2)

    async def work() -> None:
        episodes = [asyncio.ensure_future(gym.play(agent_of(scripted(actions=["x"])), t, group="g", seed=0)) for t in toy_tasks(4)]
        await asyncio.sleep(0.1)
        for e in episodes:
            e.cancel()
        await asyncio.gather(*episodes, return_exceptions=True)

    asyncio.run(work())
    gym.close()
    deadline = time.monotonic() + 2
    while fresh.closed < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fresh.made == 2 == fresh.closed


def test_the_same_seed_gives_the_same_episodes(renderer: Renderer) -> None:
    pick: Callable[[Request], str] = lambda r: ["go left", "go right", "take key", "open door"][r.seed % 4]  # noqa: E731
    one, two = (play_all(toy_gym(places, size=3), agent_of(scripted(actions=pick), renderer), toy_tasks(4, size=3), size=3) for places in (1, 7))
    assert one == two
    assert len({tuple(s.action for s in t.steps) for t in one[0]}) > 1  # members of a group differ
