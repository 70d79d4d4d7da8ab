"""ToolEnv: calls become steps; feedback, rewards, the end, states, tasks, demonstrations."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Generator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import registry
from agentgym.errors import ConfigError, DataError, EnvError, RegistryError, TaskError
from agentgym.rollout import Agent, Gym, collect
from agentgym.tool_env import ToolEnv
from agentgym.tools import ToolResult
from agentgym.types import Sampling, Status, Task

ROWS = [
    {"id": "a", "split": "train", "x": 2, "y": 3, "type": "small"},
    {"id": "b", "split": "train", "x": 20, "y": 30, "type": "big"},
    {"id": "c", "split": "test", "x": 5, "y": 5},
]


class Sums(ToolEnv):
    """Add up."""

    max_steps = 4
    format = "hermes"

    def __init__(self, *, bonus: float = 0.0, **options: Any) -> None:
        super().__init__(**{"tasks": ROWS, **options})
        self.bonus = bonus

    @agentgym.tool
    def add(self, x: int, y: int) -> ToolResult:
        """Add two numbers."""
        self.calls += 1
        return ToolResult(x + y, reward=self.bonus)

    @agentgym.tool
    async def broken(self, how: str) -> str:
        """Break."""
        await asyncio.sleep(0)
        raise EnvError("the server is gone") if how == "env" else ValueError("oh no")

    def setup(self, task: dict[str, Any]) -> str:
        self.calls = 0
        return f"{task['x']} + {task['y']}?"

    def score(self, answer: str) -> dict[str, float]:
        return {"correct": float(answer == str(self.task["x"] + self.task["y"])), "short": 0.1 * (self.calls < 2)}

    def demonstrate(self) -> Generator[tuple[str, dict[str, Any]], str, None]:
        total = yield "add", {"x": self.task["x"], "y": self.task["y"]}
        yield "answer", {"text": total}


def hermes(*calls: tuple[str, dict[str, Any]]) -> str:
    return "".join(f"<tool_call>\n{json.dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_local", {})
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))


def test_an_episode_by_hand() -> None:
    env = Sums(bonus=0.25)
    text, info = env.reset(options={"task": "a"})
    assert text.endswith("\n\n2 + 3?") and "<tools>" in text and '"add"' in text and '"answer"' in text
    assert info["task_type"] == "small" and info["valid"] and not info["success"]
    text, reward, terminated, truncated, info = env.step(hermes(("add", {"x": 2, "y": 3})))
    assert text == "<tool_response>\n5\n</tool_response>" and reward == 0.25 and not terminated and not truncated and info["valid"]
    _, reward, terminated, truncated, info = env.step(hermes(("answer", {"text": "5"})))
    assert reward == pytest.approx(1.1) and terminated and not truncated and info["success"]
    assert info["rewards"] == {"correct": 1.0, "short": 0.1}
    with pytest.raises(EnvError, match=r"Sums: step\(\) outside of an episode"):
        env.step("x")


def test_several_calls_in_one_completion_stop_at_the_answer() -> None:
    env = Sums(bonus=0.5)
    env.reset(options={"task": "a"})
    text, reward, terminated, *_ = env.step(hermes(("add", {"x": 1, "y": 1}), ("add", {"x": 2, "y": 3})))
    assert text == "<tool_response>\n2\n</tool_response>\n<tool_response>\n5\n</tool_response>" and reward == 1.0
    _, reward, terminated, _, info = env.step(hermes(("answer", {"text": "5"}), ("add", {"x": 1, "y": 1})))
    assert terminated and reward == 1.0 and env.calls == 2 and info["success"]
    env = Sums(max_calls=2)
    env.reset(options={"task": "a"})
    text, *_, info = env.step(hermes(*[("add", {"x": 1, "y": 1})] * 3))
    assert "Only the first 2 of 3 calls were carried out" in text and env.calls == 2 and not info["valid"]


def test_what_the_model_gets_wrong_is_answered_and_the_episode_goes_on() -> None:
    env = Sums(max_steps=10)
    env.reset(options={"task": "a"})
    for action, said in [
        ("I think it is 5.", "<tool_call>"),
        (hermes(("ad", {"x": 1})), "There is no tool 'ad'. Did you mean 'add'?"),
        (hermes(("add", {"x": 1})), "add: the argument 'y' is missing. Call it as add(x: integer, y: integer)."),
        (hermes(("answer", {"txt": "5"})), "answer: the argument 'text' is missing."),
    ]:
        text, reward, terminated, truncated, info = env.step(action)
        assert said in text and not info["valid"] and reward == 0 and not terminated and not truncated
    text, *_, info = env.step(hermes(("broken", {"how": "x"})))
    assert "broken failed: ValueError: oh no" in text and info["valid"]  # the call was right; the tool was not
    with pytest.raises(EnvError, match="the server is gone"):
        env.step(hermes(("broken", {"how": "env"})))
    with pytest.raises(EnvError, match=r"call reset\(\) first"):
        env.step(hermes(("answer", {"text": "5"})))


def test_the_step_limit_truncates_and_scores_nothing() -> None:
    env = Sums(max_steps=2)
    env.reset(options={"task": "a"})
    env.step("?")
    _, reward, terminated, truncated, info = env.step(hermes(("add", {"x": 2, "y": 3})))
    assert truncated and not terminated and reward == 0 and info["rewards"] == {} and not info["success"]


class Lamp(ToolEnv):
    """Switch the lamp on: scored by its state, not by an answer."""

    max_steps = 2
    format = "hermes"

    @agentgym.tool
    def switch(self) -> None:
        """Switch it."""
        self.on = not self.on

    @agentgym.tool
    def smash(self) -> ToolResult:
        """Smash it."""
        return ToolResult("Crack.", reward=-1.0, done=True)

    async def setup(self, task: Any) -> str:
        self.on = False
        return "It is dark."

    def score(self) -> bool:  # type: ignore[override]
        return self.on


def test_score_without_an_answer_looks_at_the_state_at_every_end() -> None:
    env = Lamp(tasks=[{"id": "x"}])
    assert list(env.toolbox) == ["switch", "smash", "finish"]
    env.reset(seed=0)
    text, *_ = env.step(hermes(("switch", {})))
    assert text == "<tool_response>\nOK\n</tool_response>"
    _, reward, terminated, _, info = env.step(hermes(("finish", {})))
    assert terminated and reward == 1 and info["success"]
    env.reset(seed=0)
    env.step(hermes(("switch", {})))
    *_, truncated, info = env.step("what now?")
    assert truncated and info["success"]
    env.reset(seed=0)
    _, reward, terminated, *_ = env.step(hermes(("smash", {})))
    assert terminated and reward == -1.0


def test_a_final_tool_of_ones_own_and_its_failure() -> None:
    class Point(ToolEnv):
        @agentgym.tool(final=True)
        def submit(self, x: int, y: int) -> tuple[int, int]:
            """Give the point."""
            if x < 0:
                raise ValueError("x is at least 0")
            return x, y

        def setup(self, task: Any) -> str:
            return "Where?"

        def score(self, answer: tuple[int, int]) -> float:
            return sum(answer) / 10

    env = Point(tasks=[{}])
    env.reset(seed=0)
    text, _, terminated, *_ = env.step(hermes(("submit", {"x": -1, "y": 1})))
    assert "submit failed: ValueError: x is at least 0" in text and not terminated
    _, reward, terminated, _, info = env.step(hermes(("submit", {"x": 2, "y": 3})))
    assert terminated and reward == 0.5 and not info["success"]  # success needs success_at = 1.0


def test_a_subclass_may_replace_or_drop_a_tool() -> None:
    class More(Sums):
        broken = None  # type: ignore[assignment]

        @agentgym.tool
        def add(self, x: int) -> int:
            """Add one."""
            return x + 1

    assert list(More().toolbox) == ["add", "answer"] and More().specs[0].description == "Add one."
    assert list(Sums().toolbox) == ["add", "broken", "answer"]


def test_states_are_the_accepted_calls() -> None:
    def state(*actions: str, task: str = "a") -> str:
        env = Sums()
        env.reset(options={"task": task})
        info: dict[str, Any] = {}
        for action in actions:
            *_, info = env.step(action)
        return str(info["state"])

    one, two = hermes(("add", {"x": 1, "y": 2})), hermes(("add", {"y": 2, "x": 1}))
    assert state(one) == state(two) == state("nonsense", one) != state("nonsense")
    assert state(one) != state(one, task="b") and state(one) != state(one, one)


def test_tasks_from_files_lists_and_methods(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    assert Sums(tasks=file).tasks() == ["a", "b"] and Sums(tasks=str(file), split="test").tasks() == ["c"]
    with pytest.raises(TaskError, match=r"no task has the split 'tset'\. Did you mean 'test'\? Splits there: test, train"):
        Sums(split="tset")
    for content, error in [
        ('{"id": 1}\n{"id": ', "line 2: not valid JSON"),
        ("[1]", "line 1: a task is an object"),
        ('{"id": "a"}\n{"id": "a", "split": "test"}', "two tasks have the id 'a'"),
    ]:
        file.write_text(content)
        with pytest.raises(DataError, match=error):
            Sums(tasks=file)
    with pytest.raises(DataError, match=r"the task file .* does not exist"):
        Sums(tasks=tmp_path / "no.jsonl")
    with pytest.raises(ConfigError, match="Sums has no tasks: give tasks=FILE"):
        Sums(tasks=None)
    unnamed = [Sums(tasks=rows).tasks() for rows in ([{"x": 1}, {"x": 2}], [{"x": 0}, {"x": 2}, {"x": 1}])]
    assert unnamed[0] == unnamed[1][2:0:-1]  # adding rows renames none


def test_options_are_checked() -> None:
    agentgym.register("sums", Sums)
    with pytest.raises(EnvError, match=r"no option 'max_step'\. Did you mean 'max_steps'.*Options: bonus, tasks, split"):
        agentgym.make("sums", max_step=3)
    with pytest.raises(RegistryError, match=r"no format named 'herme'\. Did you mean 'hermes'"):
        agentgym.make("sums", format="herme")
    with pytest.raises(ConfigError, match="format: which one"):
        agentgym.make("sums", format={"first": True})
    with pytest.raises(EnvError, match="max_steps=0"):
        agentgym.make("sums", max_steps=0)

    class Twice(Sums):
        tools = (agentgym.tool(name="add")(len),)

    with pytest.raises(ConfigError, match="two tools named 'add'"):
        Twice().reset(seed=0)


def test_register_with_a_task_file_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    agentgym.register("my-sums", Sums, tasks=file, bonus=0.5)
    env = agentgym.make("my-sums", split="test")
    assert env.tasks() == ["c"] and env.bonus == 0.5  # type: ignore[attr-defined]
    assert gymnasium.make("agentgym/my-sums-v0", max_steps=7).unwrapped.max_steps == 7  # type: ignore[attr-defined]
    assert registry.names("env")["my-sums"] == "Add up."
    with pytest.raises(EnvError, match=r"no option 'splt'\. Did you mean 'split'"):
        agentgym.make("my-sums", splt="test")


def test_a_bare_path_gets_a_gymnasium_id_too(tmp_path: Path) -> None:
    (tmp_path / "lamp.py").write_text(
        "import agentgym\n\nclass Dim(agentgym.ToolEnv):\n    task_file = 'lamp.jsonl'\n    def setup(self, task): return 'x'\n"
    )
    (tmp_path / "lamp.jsonl").write_text('{"id": "one"}\n')
    assert agentgym.make(f"{tmp_path}/lamp.py:Dim").tasks() == ["one"]
    assert gymnasium.make("agentgym/Dim-v0").unwrapped.tasks() == ["one"]  # type: ignore[attr-defined]


def test_the_contract_holds() -> None:
    assert agentgym.check_env(Sums) == []
    assert agentgym.check_env(lambda: Lamp(tasks=[{"id": "x"}, {"id": "y"}])) == []
    env = Sums()
    env.reset(seed=1)
    copied = pickle.loads(pickle.dumps(env))
    assert copied.reset(options={"task": "b"})[0] == env.reset(options={"task": "b"})[0]


@pytest.mark.parametrize("format", ["hermes", "tags", "plain", "openai"])
def test_the_expert_writes_every_format(format: str) -> None:
    env = Sums(format=format, split="test")
    observation, info = env.reset(seed=0)
    player, done, total = env.expert(), False, 0.0
    while not done:
        observation, reward, terminated, truncated, info = env.step(player.act(observation, info))
        total, done = total + reward, terminated or truncated
    assert info["success"] and total == pytest.approx(1.1)
    with pytest.raises(EnvError, match="has no option 'noise'"):
        env.expert(noise=0.1)


def test_a_demonstration_that_is_too_short_says_so() -> None:
    class Short(Sums):
        def demonstrate(self) -> Generator[tuple[str, dict[str, Any]], str, None]:
            yield "add", {"x": 1, "y": 1}

    env = Short()
    _, info = env.reset(options={"task": "a"})
    player = env.expert()
    env.step(player.act("", info))
    with pytest.raises(EnvError, match=r"Short.demonstrate\(\) ended before the episode did \(task 'a'\)"):
        player.act("", info)


def test_a_broken_server_is_a_broken_episode_beside_whole_ones() -> None:
    from agentgym.trainers.policy.scripted import scripted

    good = [hermes(("add", {"x": 2, "y": 3})), hermes(("answer", {"text": "5"}))]
    bad = [hermes(("broken", {"how": "env"}))]

    def play(actions: list[str]) -> list[list[Any]]:
        agent = Agent(scripted(actions=actions), registry.find("context", "full"), registry.find("action", "plain"), Sampling())

        async def go() -> list[list[Any]]:
            gym = Gym(Sums, concurrency=4)
            try:
                return await collect(gym, agent, [("g", Task("a", "sums", "train"), 0)], registry.find("explore", "independent"), size=3)
            finally:
                gym.close()

        return asyncio.run(go())

    assert [t.outcome for t in play(good)[0]] == [pytest.approx(1.1)] * 3
    with pytest.raises(agentgym.errors.PolicyError, match="all 3 episodes failed; the first: EnvError: the server is gone"):  # type: ignore[attr-defined]
        play(bad)
    assert Status.ERROR
