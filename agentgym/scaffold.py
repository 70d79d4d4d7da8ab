"""`agentgym init env NAME`: a small working environment with its tasks, its task set and its test, to be changed into one's own."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from .errors import ConfigError

ENV = '''\
"""$title: an environment over tools. Change the tools, the tasks and the score into your own."""

import agentgym


class $cls(agentgym.ToolEnv):
    """Work out small sums with a calculator."""

    task_file = "$name.jsonl"
    max_steps = 4

    @agentgym.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @agentgym.tool
    def multiply(self, a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    def setup(self, task):
        return f"What is {task['a']} {task['op']} {task['b']}?"  # what the model reads first

    def score(self, answer: str):
        a, b = self.task["a"], self.task["b"]
        return float(answer.strip() == str(a + b if self.task["op"] == "+" else a * b))

    def demonstrate(self):  # optional: the expert, for a warm start and as an upper bound
        name = "add" if self.task["op"] == "+" else "multiply"
        result = yield name, {"a": self.task["a"], "b": self.task["b"]}
        yield "answer", {"text": result}
'''

TASKS = """\
{"id": "sum", "split": "train", "a": 3, "op": "+", "b": 4}
{"id": "product", "split": "train", "a": 6, "op": "*", "b": 7}
{"id": "held-out", "split": "test", "a": 4, "op": "*", "b": 5}
"""

TASK_SET = """\
# agentgym run $name.yaml        A small model made on the spot; `model: NAME_OR_PATH` trains yours instead.
env: {name: ./$name.py:$cls, format: plain, instructions: false}
splits: {train: train, eval: test}
recipe: gigpo
model: {name: tiny, layers: 2, hidden: 64, heads: 2, kv_heads: 2, head_dim: 32, ffn: 128, vocab: 300}
optimizer: {name: adamw, lr: 1.0e-4}
rollout: {tasks: 16, group_size: 8, max_tokens: 24}
update: {count: 5, minibatches: 2}

stages:
  warm: # the expert's demonstrations
    recipe: imitate
    optimizer: {name: muon, lr: 3.0e-3}
    rollout: {tasks: 32, group_size: 1}
    update: {count: 40, minibatches: 4, decay: linear}
  rl: {}
"""

TEST = '''\
"""The environment keeps agentgym's contract, and its expert solves every task."""

from pathlib import Path

import agentgym
import pytest

HERE = f"{Path(__file__).parent / '$name.py'}:$cls"


def test_the_contract() -> None:
    assert agentgym.check_env(HERE) == []


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_solves_every_task(split: str) -> None:
    env = agentgym.make(HERE, split=split)
    for task in env.tasks():
        observation, info = env.reset(options={"task": task})
        expert, done = env.expert(), False
        while not done:
            observation, reward, terminated, truncated, info = env.step(expert.act(observation, info))
            done = terminated or truncated
        assert info["success"] and reward == 1.0


def test_a_wrong_answer_gets_nothing() -> None:
    env = agentgym.make(HERE)
    env.reset(options={"task": "sum"})
    *_, info = env.step(env.call_text("answer", text="8"))
    assert not info["success"]
'''


def class_name(name: str) -> str:
    """Return the class's name of an environment: my-env becomes MyEnv."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[-_]+", name))


def init_env(name: str, folder: Path | None = None) -> list[Path]:
    """Write NAME/NAME.py, .jsonl, .yaml and test_NAME.py; return them. Raises ConfigError on a bad name, or rather than overwrite a file."""
    module = name.replace("-", "_").lower()
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or keyword.iskeyword(module):
        raise ConfigError(f"an environment's name has letters, digits, '-' and '_', begins with a letter, and is no word of Python; got {name!r}")
    cls = class_name(name)
    words = {"name": module, "cls": cls, "title": cls}
    folder = Path(module) if folder is None else folder
    files = {f"{module}.py": ENV, f"{module}.jsonl": TASKS, f"{module}.yaml": TASK_SET, f"test_{module}.py": TEST}
    there = [folder / f for f in files if (folder / f).exists()]
    if there:
        raise ConfigError(f"{there[0]} exists already; nothing was written. Choose another name, or --dir")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(Template(text).substitute(words), "utf-8")
    return [folder / f for f in files]
