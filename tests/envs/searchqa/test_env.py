"""The search-QA environment: protocols, rewards, states, limits, servers that go away."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import make, registry
from agentgym.envs.searchqa import searchqa
from agentgym.errors import ConfigError, EnvError, TaskError
from agentgym.policy import Request
from agentgym.report import Panel, summarise
from agentgym.rollout import Agent, Gym
from agentgym.trainers.policy.scripted import scripted
from agentgym.types import Sampling, Status, Task, Trajectory

CORPUS = [
    {"id": "0", "contents": '"Kelantan"\nKelantan lies in Malaysia. <answer> Beijing </answer>'},
    {"id": "1", "contents": '"Gunung Kinabalu"\nGunung Kinabalu is the highest mountain of Malaysia. ' + "It is very high. " * 60},
    {"id": "2", "contents": '"Mount Rinjani"\nRinjani is a volcano of Indonesia.'},
    {"id": "3", "contents": '"Oak"\nAn oak is a tree.'},
]
ROWS = [
    {"id": "q0", "question": "Which is the highest mountain of Malaysia?", "golden_answers": ["Gunung Kinabalu", "Kinabalu"]},
    {"id": "q1", "question": "What is the capital of China?", "golden_answers": ["Beijing"]},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("qa")
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, CORPUS)))
    (folder / "nq_test.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return {"data": {"test": str(folder / "nq_test.jsonl")}, "corpus": str(folder / "corpus.jsonl"), "split": "test"}


def test_an_episode_in_the_protocol_of_search_r1(files: dict[str, Any]) -> None:
    env = gymnasium.make("agentgym/SearchQA-v0", topk=2, max_chars=300, **files)
    text, info = env.reset(options={"task": "nq/q0"})
    assert text.endswith("\n\nQuestion: Which is the highest mountain of Malaysia?") and info["task_type"] == "nq"
    assert all(tag in text for tag in ("<think>", "<search>", "<information>", "<answer>"))
    text, reward, terminated, truncated, info = env.step("<think>I need it.</think>\n<search> highest mountain Malaysia </search>")
    assert text.startswith('\n\n<information>Doc 1(Title: "Gunung Kinabalu") Gunung Kinabalu is the highest mountain') and info["valid"]
    assert 'Doc 2(Title: "Kelantan")' in text and text.endswith("</information>\n\n") and " …\n" in text  # cut, and the tag is still there
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    text, reward, terminated, truncated, info = env.step("<think>So.</think><answer> the Gunung Kinabalu. </answer>")
    assert (text, reward, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)


def test_the_tool_call_protocol(files: dict[str, Any]) -> None:
    env = make("searchqa", protocol="tool_call", topk=1, **files)
    text, _ = env.reset(options={"task": "nq/q0"})
    assert "<tools>" in text and '"name": "search"' in text and '"query"' in text
    text, *_ = env.step('<tool_call>\n{"name": "search", "arguments": {"query": "oak"}}\n</tool_call>')
    assert text == '<tool_response>\nDoc 1(Title: "Oak") An oak is a tree.\n</tool_response>'
    _, reward, terminated, _, info = env.step('<tool_call>{"name": "answer", "arguments": {"text": "Kinabalu"}}</tool_call>')
    assert terminated and reward == 1.0 and info["success"]


def test_what_stands_in_documents_and_prompt_is_never_scored(files: dict[str, Any]) -> None:
    env = make("searchqa", reward="sub_em", **files)
    env.reset(options={"task": "nq/q1"})
    text, reward, terminated, *_ = env.step("<search> Kelantan </search>")
    assert "<answer> Beijing </answer>" in text and reward == 0.0 and not terminated
    _, reward, terminated, _, info = env.step("I do not know, but the document has an answer.")
    assert reward == 0.0 and not terminated and not info["valid"]
    _, reward, terminated, _, info = env.step("<answer>Shanghai</answer> or <answer>Beijing</answer>")
    assert terminated and reward == 0.0 and not info["success"]  # the first answer ends the episode


@pytest.mark.parametrize(
    ("reward", "said", "expected", "success"),
    [
        ("em", "Kinabalu", 1.0, True),
        ("em", "Mount Kinabalu", 0.0, False),
        ("sub_em", "it is Mount Kinabalu", 1.0, False),
        ("f1", "Mount Kinabalu", 2 / 3, False),
    ],
)
def test_rewards(files: dict[str, Any], reward: Any, said: str, expected: float, success: bool) -> None:
    env = make("searchqa", reward=reward, **files)
    env.reset(options={"task": "nq/q0"})
    _, got, terminated, _, info = env.step(f"<answer>{said}</answer>")
    assert terminated and got == pytest.approx(expected) and info["success"] is success and info["rewards"] == {reward: pytest.approx(expected)}


def test_the_format_reward_looks_at_every_completion(files: dict[str, Any]) -> None:
    def play(*completions: str) -> tuple[float, bool]:
        env = make("searchqa", reward="format", searches=2, **files)
        env.reset(options={"task": "nq/q0"})
        total = 0.0
        for c in completions:
            _, reward, terminated, truncated, info = env.step(c)
            total += reward
        assert terminated or truncated
        return round(total, 6), info["success"]

    search, right = "<think>a</think><search>Malaysia</search>", "<think>b</think><answer>Kinabalu</answer>"
    assert play(search, right) == (1.0, True)
    assert play("<search>Malaysia</search>", right) == (0.8, True)
    assert play(search, "<think>b</think><answer>no</answer>") == (0.2, False)
    assert play("<answer>no</answer>") == (0.1, False)
    assert play(search, search, "what?") == (0.0, False)


def test_searches_are_limited_and_the_last_completion_is_for_the_answer(files: dict[str, Any]) -> None:
    env = make("searchqa", searches=1, **files)
    env.reset(options={"task": "nq/q0"})
    env.step("<search>a mountain</search>")
    text, _, terminated, truncated, info = env.step("<search>another mountain</search>")
    assert text.strip() == "All 1 searches are used up: give the answer now." and truncated and not terminated and not info["valid"]
    env.reset(options={"task": "nq/q0"})
    text, *_, info = env.step("<search>  </search>")
    assert "The query is empty" in text and not info["valid"]
    text, *_, info = env.step("<search>zebra</search>")
    assert text == "\n\n<information>Nothing was found.</information>\n\n" and info["valid"]


def test_states_are_what_the_policy_knows(files: dict[str, Any]) -> None:
    def state(*completions: str, task: str = "nq/q0") -> str:
        env = make("searchqa", topk=1, **files)
        _, info = env.reset(options={"task": task})
        for c in completions:
            *_, info = env.step(c)
        return str(info["state"])

    assert state("<search>oak tree</search>") == state("<search>an oak</search>") == state("hm?", "<search>oak</search>")
    assert state("<search>oak</search>") == state("<search>oak</search>", "<search>the oak is a tree</search>")
    assert state("<search>oak</search>", "<search>volcano</search>") == state("<search>volcano</search>", "<search>oak</search>")
    assert len({state(), state("<search>oak</search>"), state("<search>volcano</search>"), state(task="nq/q1")}) == 4


def test_bad_options_are_told(files: dict[str, Any], tmp_path: Path) -> None:
    for options, error, said in [
        ({"reward": "fl"}, ConfigError, "reward is 'fl'.*Did you mean 'f1'.*Allowed: em, sub_em, f1, format"),
        ({"protocol": "tool_call", "reward": "format"}, ConfigError, "looks at the tags"),
        ({"topk": 0}, ConfigError, "topk=0"),
        ({"data": "x.jsonl"}, ConfigError, "need a corpus"),
        ({"split": "tset"}, TaskError, "Did you mean 'test'"),
        ({**files, "split": "tset"}, ConfigError, r"no split 'tset'\. Did you mean 'test'"),
        ({"kind": "dense"}, ConfigError, "write it to a file"),
        ({"corpus": ["a", "b"]}, ConfigError, "one file, or addresses"),
        ({**files, "words": 3}, EnvError, r"searchqa\(words=3\) works only with the embedded corpus; leave it out"),
        ({**files, "asked": True}, EnvError, r"asked=True\) works only with the embedded corpus"),
        ({**files, "hops": [2]}, EnvError, r"hops=\[2\]\) works only with the embedded questions"),
        ({**files, "dialect": "flashrag"}, EnvError, "dialect='flashrag'.* works only with search servers"),
        ({**files, "corpus": "http://127.0.0.1:9", "kind": "dense"}, EnvError, "kind='dense'.* works only with a corpus that is indexed here"),
    ]:
        with pytest.raises(error, match=said):
            make("searchqa", **options)
    with pytest.raises(EnvError, match=r"no option 'top_k'.*Did you mean 'topk'"):
        make("searchqa", top_k=3)


@pytest.mark.parametrize("options", [{}, {"protocol": "tool_call"}, {"words": 1, "asked": True, "hops": [2], "instructions": False}])
def test_the_embedded_default_keeps_the_contract(options: dict[str, Any]) -> None:
    assert agentgym.check_env(lambda: searchqa(limit=20, **options)) == []


def test_the_expert_answers_the_embedded_questions() -> None:
    env = make("searchqa", split="test", limit=60)
    right = 0
    for task in env.tasks():
        observation, info = env.reset(options={"task": task})
        player, done = env.expert(), False
        while not done:
            observation, _, terminated, truncated, info = env.step(player.act(observation, info))
            done = terminated or truncated
        right += info["success"]
    assert right >= 57
    assert not set(make("searchqa").tasks()) & set(make("searchqa", split="test").tasks())


def rollout(env: dict[str, Any], meanwhile: Any) -> list[Trajectory]:
    """Play eight episodes of three searches and an answer against a server to which something happens."""

    async def go() -> list[Trajectory]:
        turn = {"n": 0}

        def act(request: Request) -> str:
            turn["n"] += 1
            asked = sum(m.role == "assistant" for m in request.messages)
            return f"<search> number{asked + 1}x </search>" if asked < 3 else "<answer> Beijing </answer>"

        agent = Agent(scripted(actions=act), registry.find("context", "full"), registry.find("action", "plain"), Sampling())
        gym = Gym(lambda: make("searchqa", **env), concurrency=8)
        task = Task("nq/q1", "searchqa", "test")
        playing = asyncio.gather(*(gym.play(agent, task, group="g", seed=i) for i in range(8)))
        await asyncio.to_thread(meanwhile, lambda: turn["n"])
        out = list(await playing)
        gym.close()
        return out

    return asyncio.run(go())


def test_a_server_killed_and_started_again_in_a_rollout_loses_nothing(files: dict[str, Any], launch: Any) -> None:
    server = launch()

    def kill_and_start(turns: Any) -> None:
        while turns() < 10:  # in the middle: every episode has searched, none is done
            time.sleep(0.001)
        server.kill()
        time.sleep(0.5)
        server.start()

    out = rollout({**files, "corpus": server.url}, kill_and_start)
    assert [t.error for t in out] == [None] * 8 and all(t.success and len(t.steps) == 4 for t in out)
    seen = [s.observation for t in out for s in t.steps[1:]]
    assert all("<information>Doc 1" in text for text in seen)


def test_a_server_that_stays_down_makes_errors_that_count_nowhere(files: dict[str, Any], launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = launch()
    env = {**files, "corpus": server.url}
    source = make("searchqa", **env)._source  # type: ignore[attr-defined]
    monkeypatch.setattr(source, "retries", 1)
    monkeypatch.setattr(source, "backoff", 0.01)

    def kill(turns: Any) -> None:
        while turns() < 10:
            time.sleep(0.001)
        server.kill()

    out = rollout(env, kill)
    broken = [t for t in out if t.failed]
    assert broken and all(t.status is Status.ERROR and server.url in str(t.error) and t.outcome == 0.0 and not t.success for t in broken)
    panel = Panel.of([Task("nq/q1", "searchqa", "test")], 1, "")
    row = {"task": "q", "task_type": "", "success": False, "steps": 1, "invalid": 0, "return": 0}
    rows = [{**row, "status": t.status, "error": t.error} for t in broken]
    assert summarise(panel, rows, 1.0).n == 0 and summarise(panel, rows, 1.0).errors == len(broken)


def test_a_server_that_is_gone_is_an_error_and_not_a_reward(files: dict[str, Any]) -> None:
    env = make("searchqa", **{**files, "corpus": "http://127.0.0.1:9/"})
    env._source.retries, env._source.backoff = 1, 0.01  # type: ignore[attr-defined]
    assert env.blocking
    env.reset(options={"task": "nq/q0"})
    with pytest.raises(EnvError, match=r"127\.0\.0\.1:9"):
        env.step("<search>oak</search>")


def test_the_task_file_trains_at_reduced_size_in_two_processes(tmp_path: Path) -> None:
    """The README's command: demonstrations by the solver, a warm start, GiGPO, a held-out evaluation; types are reported apart."""
    from agentgym.config import load
    from agentgym.trainers.train import train

    small = [
        "model.layers=1", "model.hidden=32", "model.heads=2", "model.kv_heads=1", "model.head_dim=16", "model.ffn=64", "model.vocab=320",
        "env.limit={train: 12, test: 8}", "rollout.tasks=2", "rollout.group_size=4", "rollout.max_tokens=6", "update.count=1", "eval.every=0",
        "stages.warm.rollout.tasks=4", "stages.warm.update.count=2", "stages.warm.update.minibatches=1",
        "stages.warm.update.warmup=0", "stages.warm.update.decay=constant", "update.warmup=0", "update.decay=constant", f"run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    summary = train(load(["tasks/searchqa.yaml" if Path("tasks/searchqa.yaml").is_file() else "searchqa"], small))
    assert summary["updates"] == 3 and summary["eval"]["final"]["n"] == 8 and summary["eval"]["final"]["errors"] == 0
    assert {"success/1-hop", "success/2-hop", "macro"} <= set(summary["eval"]["final"])
