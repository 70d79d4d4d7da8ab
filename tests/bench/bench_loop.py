"""What the agent loop costs beside the model, how much memory it takes, how fast a run starts. `python tests/bench/bench_loop.py [--out FILE.json]`

1. CPU seconds of a rollout by place: the model's forward pass, planning and cache bookkeeping, drawing tokens, and the loop itself (contexts,
   renderer, environment, asyncio). Goal: at most 10 % outside the forward pass, for the 0.8M model with 32 episodes of 8 turns
   (a prompt of 256 tokens, then 16 sampled and 40 observed a turn). Beside it 5.8M, and the quick start's shape: 192 episodes of ALFWorld, 0.34M.
2. Peak memory (resident) of those 192 episodes and of an update on them, each in a process of its own.
3. CPU seconds of `agentgym run` until it has loaded everything, and until its first update is done.

One torch thread, CPU seconds (`time.process_time`), medians of 3.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _out import write
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agentgym import registry
from agentgym.env import TextEnv, make
from agentgym.renderer import Renderer
from agentgym.rollout import Agent, Gym, collect
from agentgym.trainers import prefix
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.call import call
from agentgym.trainers.model import load_model
from agentgym.trainers.policy.hf import hf
from agentgym.trainers.tokenizer import build_tokenizer
from agentgym.trainers.update import Updater
from agentgym.types import Sampling, Task, Trajectory

WORDS = [a + b + c + d for a in "bcdfgklm" for b in "aeiou" for c in "lmnprstvz" for d in "aeioubdfgk"]
# hidden, layers, heads, key-value heads, head dimension, feed-forward
MODELS = {"0.8M": (128, 2, 4, 2, 32, 256), "5.8M": (256, 6, 8, 4, 32, 768)}
FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")


@dataclass(frozen=True)
class Shape:
    """Episodes of equal length, in tokens."""

    groups: int
    size: int
    turns: int
    prompt: int
    sampled: int
    observed: int

    @property
    def length(self) -> int:
        return self.prompt + self.turns * self.sampled + (self.turns - 1) * self.observed


class Fixed(TextEnv):
    """Says words, always as many, and ends after `turns` steps with a random reward."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.rewards = random.Random(0)

    def tasks(self) -> list[str]:
        return [str(i) for i in range(self.shape.groups)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.task = self.pick_task(seed, options, self.tasks())
        self.turn = 0
        return words(self.task, self.shape.prompt - 2), self._info()  # two role markers around it

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        done = self.turn == self.shape.turns
        seen = words(str(self.turn), self.shape.observed - 3)  # the end token and two role markers around it
        return seen, self.rewards.random() * done, done, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"task_id": self.task, "state": str(self.turn), "success": False, "valid": True}


@functools.lru_cache
def words(seed: str, n: int) -> str:
    """Return a text of `n` tokens; made once, since it is not what is measured."""
    return " ".join(random.Random(seed).choices(WORDS, k=n))


def make_model(name: str) -> PreTrainedModel:
    """Return a Qwen3 decoder with random weights and a vocabulary of 4096."""
    torch.manual_seed(0)
    sizes = dict(zip(FIELDS, MODELS[name], strict=True))
    config = Qwen3Config(vocab_size=4096, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=1, pad_token_id=0, **sizes)
    return Qwen3ForCausalLM(config).eval()


def make_tokenizer() -> Any:
    """Return a tokenizer of 4096 tokens, each of WORDS one of them."""
    filler = [w.upper() for w in WORDS]  # fills the vocabulary; rarer than WORDS, so that these all find a place
    return build_tokenizer([" ".join(WORDS), " ".join(WORDS), " ".join(filler)], vocab=4096, max_length=4096)


def make_agent(model: Any, tokenizer: Any, max_tokens: int) -> Agent:
    """Return an agent that never stops early: every completion has its full length."""
    renderer = Renderer(tokenizer)
    renderer.stop_ids = frozenset()
    context, action = registry.bind("context", "full", {}), registry.bind("action", "plain", {})
    return Agent(hf(model, renderer), context, action, Sampling(max_tokens=max_tokens), renderer)


def play(agent: Agent, make_env: Callable[[], TextEnv], tasks: list[str], size: int) -> list[Trajectory]:
    """Play a group of `size` episodes of each task, all at once."""
    gym = Gym(make_env, concurrency=len(tasks) * size)
    keyed = [(t, Task(t, "bench", "train"), i) for i, t in enumerate(tasks)]
    explore = registry.bind("explore", "independent", {})
    try:
        return [t for g in asyncio.run(collect(gym, agent, keyed, explore, size=size)) for t in g]
    finally:
        gym.close()


# -- 1. where the time goes ----------------------------------------------------------------------------------------------------------------


@contextmanager
def clock(policy: hf) -> Iterator[dict[str, float]]:
    """Count CPU seconds: of the model's forward pass, of the policy's tick with and without its parts, and of everything."""
    spent: dict[str, float] = defaultdict(float)
    begun: list[float] = []

    def timed(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return fn(*args, **kwargs)
            finally:
                spent[name] += time.process_time() - start

        return inner

    hooks = [
        policy.model.register_forward_pre_hook(lambda *_: begun.append(time.process_time())),
        policy.model.register_forward_hook(lambda *_: spent.__setitem__("model", spent["model"] + time.process_time() - begun.pop())),
    ]
    for name in ("_tick", "_forward", "_sample"):
        setattr(policy, name, timed(name, getattr(policy, name)))
    start = time.process_time()
    yield spent
    spent["all"] = time.process_time() - start
    for hook in hooks:
        hook.remove()
    for name in ("_tick", "_forward", "_sample"):
        delattr(policy, name)


def shares(agent: Agent, make_env: Callable[[], TextEnv], tasks: list[str], size: int, repeat: int = 3) -> dict[str, float]:
    """Return CPU seconds by place and turns per CPU second, medians over `repeat` rollouts after one to warm up."""
    assert isinstance(agent.policy, hf)
    play(agent, make_env, tasks[:2], 2)
    rows = []
    for _ in range(repeat):
        with clock(agent.policy) as t:
            played = play(agent, make_env, tasks, size)
        assert not any(x.failed for x in played), next(x.error for x in played if x.failed)
        turns = sum(len(x.steps) for x in played)
        rows.append(
            {
                "model forward": t["model"],
                "plan and cache": t["_forward"] - t["model"],
                "drawing tokens": t["_sample"],
                "scheduling": t["_tick"] - t["_forward"] - t["_sample"],
                "loop, renderer, environment": t["all"] - t["_tick"],
                "all": t["all"],
                "outside forward": 1 - t["model"] / t["all"],
                "turns": turns,
                "turns per CPU s": turns / t["all"],
            }
        )
    return {k: statistics.median(r[k] for r in rows) for k in rows[0]}


def fixed_shares(name: str) -> dict[str, float]:
    """Measure a model on episodes of fixed length."""
    shape = Shape(groups=4, size=8, turns=8, prompt=256, sampled=16, observed=40)
    agent = make_agent(make_model(name), make_tokenizer(), shape.sampled)
    return shares(agent, lambda: Fixed(shape), Fixed(shape).tasks(), shape.size)


# -- 2. the quick start's shape, and memory ------------------------------------------------------------------------------------------------


def alfworld() -> TextEnv:
    return make("alfworld", data=None, split="train", size="mini", max_steps=20)


def quick_start() -> tuple[Agent, Any, list[str]]:
    """Return the agent, its model and 24 tasks; the model is fresh, so a turn has always 6 tokens (an expert's has 3 to 6)."""
    env = alfworld()
    texts = []
    for i in range(40):
        observation, info = env.reset(seed=i)
        texts += [observation, *info["admissible"]]
    model, tokenizer = load_model("tiny", corpus=texts)
    return make_agent(model, tokenizer, 6), model, env.tasks()[:24]


def update(model: Any, played: list[Trajectory]) -> Batch:
    """Take one optimiser step of GRPO on the episodes."""
    batch = pack(played, discount=0.95)
    batch.set_advantage(call(registry.bind("credit", "grpo", {}), batch))
    updater(model).run(batch, generator=torch.Generator().manual_seed(0))
    return batch


def updater(model: Any) -> Updater:
    optimizer = registry.bind("optimizer", "adamw", {"lr": 1e-6})(model.named_parameters())
    objectives = [("clip", registry.bind("objective", "clip", {}), 1.0)]
    share = prefix.shares(model, "auto")  # the default of a run
    return Updater(model, optimizer, objectives, registry.bind("reduce", "token_mean", {}), tokens_per_microbatch=16_384, share=share)


def part(name: str) -> dict[str, float]:
    """Do one thing in this process, and say what it cost."""
    if name == "alfworld":
        agent, _, tasks = quick_start()
        return shares(agent, alfworld, tasks, 8)
    before = peak()
    start = time.process_time()
    agent, model, tasks = quick_start()
    played = play(agent, alfworld, tasks, 8)
    out = {"imported MB": before, "rollout MB": peak(), "rollout CPU s": time.process_time() - start}
    if name == "update":
        start = time.process_time()
        batch = update(model, played)
        out |= {"update MB": peak(), "update CPU s": time.process_time() - start, "tokens": batch.n_tokens}
    return out


def peak() -> float:
    """Return the process's peak resident memory in MB. Not getrusage: its peak includes the parent's, from before the exec."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]


def in_process(name: str) -> dict[str, float]:
    """Run `part` in a fresh process."""
    done = subprocess.run([sys.executable, __file__, "--part", name], check=True, capture_output=True, text=True, env=one_thread())
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


# -- 3. start-up ---------------------------------------------------------------------------------------------------------------------------


def start_up() -> dict[str, float]:
    """Return CPU and wall seconds of `agentgym run` from the call to each of: all parts loaded, evaluated once, first update done."""
    code = "import sys; from agentgym.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        task = Path(folder) / "task.yaml"
        task.write_text(
            "env: {name: alfworld, data: null, size: mini, max_steps: 20}\ncontext: full\naction: plain\nrecipe: grpo\n"
            f"model: {{name: tiny}}\nrollout: {{tasks: 4, group_size: 4, max_tokens: 6}}\nupdate: {{count: 1000}}\nrun: {{dir: {run}, threads: 1}}\n"
        )
        start = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-c", code, "run", str(task)], env=one_thread(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            loaded = wait(child, lambda: (run / "manifest.json").exists(), start)
            evaluated = wait(child, lambda: any(run.glob("eval/before*")), start)
            updated = wait(child, lambda: any('"update"' in p.read_text() for p in run.glob("*.jsonl")), start)
        finally:
            child.kill()
            child.wait()
    names = {"loaded": loaded, "first evaluation": evaluated, "first update": updated}
    return {f"{n} {kind} s": v for n, pair in names.items() for kind, v in zip(("CPU", "wall"), pair, strict=True)}


def wait(child: subprocess.Popen[bytes], ready: Callable[[], bool], start: float, limit: float = 120) -> tuple[float, float]:
    """Return the CPU and wall seconds of `child` when `ready`."""
    while not ready():
        if child.poll() is not None:
            raise RuntimeError(f"`agentgym run` ended with {child.returncode}: {child.communicate()[0].decode()[-2000:]}")
        if time.perf_counter() - start > limit:
            raise RuntimeError(f"`agentgym run` was not ready after {limit:g} s")
        time.sleep(0.02)
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), time.perf_counter() - start


def goal(what: str, found: dict[str, float]) -> dict[str, Any]:
    """Return one line of the summary: a share of a rollout's CPU seconds."""
    loop = (found["loop, renderer, environment"] + found["scheduling"]) / found["all"]
    value = loop if what.startswith("of it") else found["outside forward"]
    return {"what": what, "value": f"{value:.1%}", "goal": "<= 10 %", "met": value <= 0.10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--part", choices=("alfworld", "rollout", "update"), help="only this, in this process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part:
        print(json.dumps(part(options.part)))
        return
    result: dict[str, Any] = {f"{name}, fixed lengths": fixed_shares(name) for name in MODELS}
    for name in ("alfworld", "update"):
        result[{"alfworld": "0.34M, ALFWorld, 192 episodes", "update": "memory, 192 episodes"}[name]] = in_process(name)
    result["start-up"] = start_up()
    result["goals"] = [
        goal(f"{place}, {name}", result[f"{name}, fixed lengths"])
        for name in MODELS
        for place in ("outside the model's forward", "of it the agent loop itself")
    ]
    write(result, options.out)


if __name__ == "__main__":
    main()
