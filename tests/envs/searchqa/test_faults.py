"""A whole episode as a trainer sees it: what is trained on is what the policy sampled, once, and generation ends where a call ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import agentgym
from agentgym import make, registry
from agentgym.config import load
from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym, collect
from agentgym.trainers.batch import pack
from agentgym.trainers.explore.independent import independent
from agentgym.trainers.tokenizer import build_tokenizer
from agentgym.types import Completion, Sampling, Task

SMALL: dict[str, Any] = {"words": 1, "asked": True, "topk": 1}
ROOT = Path(agentgym.__file__).resolve().parents[1]


class Typist:
    """A policy that writes given ids, and keeps the context that it was asked with."""

    wants = "tokens"

    def __init__(self, renderer: Renderer, turns: Sequence[list[int]]) -> None:
        self.renderer, self.turns, self.asked = renderer, turns, list[list[int]]()

    async def complete(self, request: Request, sampling: Sampling) -> Completion:
        ids = self.turns[len(self.asked)]
        self.asked.append(list(request.tokens))
        return Completion(self.renderer.decode(ids), list(ids), [-1.0] * len(ids), "stop")

    def release(self, episode: str) -> None: ...

    def load(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...


def test_what_is_trained_on_is_what_was_sampled_and_nothing_that_was_found() -> None:
    env = make("searchqa", **SMALL)
    task = env.tasks()[0]
    renderer = Renderer(build_tokenizer([env.reset(options={"task": t})[0] for t in env.tasks()[:20]], vocab=400, max_length=4096))
    # Ids one by one, which their own text would not give again: text that is encoded anew would differ from what was sampled.
    turns = [renderer.tokenizer.convert_tokens_to_ids(list(t)) for t in ("<search>Capital</search>", "what?", "<answer>Capital</answer>")]
    assert renderer.tokenizer.encode(renderer.decode(turns[0]), add_special_tokens=False) != turns[0]
    policy = Typist(renderer, turns)
    agent = Agent(policy, registry.bind("context", "full"), registry.bind("action", "plain"), Sampling(), renderer)
    gym = Gym(lambda: make("searchqa", **SMALL), concurrency=1, timeout=60.0)
    ((episode,),) = asyncio.run(collect(gym, agent, [("g", Task(task, "searchqa", "train", seed=0), 0)], independent, size=1))
    gym.close()
    assert not episode.failed and len(episode.steps) == 3
    batch = pack([episode], discount=1.0)
    context: list[int] = []
    for step, asked, written in zip(episode.steps, policy.asked, turns, strict=True):
        context += step.prompt
        assert context == asked and step.completion.tokens == written
        context += written
    assert batch.token.tolist() == context and batch.n_segments == 1
    assert batch.token[batch.sampled].tolist() == [t for turn in turns for t in turn]
    read = renderer.decode(batch.token[~batch.sampled].tolist())
    assert "<information>Doc 1(Title:" in read and "</information>" in read


def test_the_task_file_for_chat_models_stops_where_a_call_ends() -> None:
    config = load([ROOT / "tasks/searchqa_chat.yaml"])
    assert config.env is not None
    assert tuple(config.rollout.stop) == make(config.env.name, **config.env.options).stops == ("</search>", "</answer>")


def test_the_tests_that_the_readme_names_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "envs/searchqa/README.md").read_text("utf-8")))
    there = {name for f in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^def (test_\w+)\(", f.read_text("utf-8"), re.M)}
    assert len(named) > 12 and named <= there, named - there
