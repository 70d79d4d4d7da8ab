"""What shared prefixes save in an update, beside the plain way and TRL's GRPOTrainer; and the memory of log-probabilities at vocabulary 151,936.

    python tests/bench/bench_prefix.py [--out FILE.json] [--repeat 3]

1. One group of N = 8 and 32 completions of 128 tokens behind a prompt of P = 256 and 1,024: log-probabilities, GRPO's clipped loss, backward,
   AdamW; a Qwen3 of 2.1M parameters, vocabulary 4096, fp32, one thread. No generation: TRL (needs `pip install 'agentgym[bench]'`) gets the same
   ids through its `rollout_func`; it does all of them in one batch. Ours: `update.shared_prefix` never and auto, micro-batches of 16,384 tokens.
   The three take turns in one process; peak memory is that of a process of its own, above what is there after loading.
2. The log-probabilities of 1,024 tokens and their gradient at a vocabulary of 151,936 (hidden size 64): the whole [N, V], and in chunks as ours.
3. Scoring without gradient: 4 episodes of 20 steps under a window context (256 tokens in common, 100 of a window, 16 written).

Times are CPU seconds, medians. Goals: an update with shared prefixes costs less than the plain one in every row, and at
N = 32, P = 1,024 at most a third of it; chunks take at most a quarter of the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _out import write
from bench_loop import make_tokenizer
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agentgym import registry
from agentgym.trainers import forward
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.forward import logprobs
from agentgym.trainers.prefix import shares
from agentgym.trainers.streams import score
from agentgym.trainers.update import Updater
from agentgym.types import Completion, Status, Step, Task, Trajectory

SHAPES = [(256, 8), (1024, 8), (256, 32), (1024, 32)]  # prompt, group size
WRITTEN = 128
VOCABULARY = 4096
LARGE = 151_936
Way = Callable[[], Any]


def model(vocabulary: int = VOCABULARY, hidden: int = 192, layers: int = 4) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers, num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def ids(n: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(10, VOCABULARY), k=n)


def group(prompt: int, size: int) -> Batch:
    """Return a group of single-turn episodes with GRPO's advantage."""
    played = []
    for i in range(size):
        done = Completion("x", ids(WRITTEN, i), [-8.0] * WRITTEN, version=0)
        step = Step(ids(prompt, -1), True, done, "x", True, "", float(i % 2), "s")
        played.append(Trajectory(Task("t", "bench", "train"), "g", [step], outcome=float(i % 2), status=Status.TERMINATED))
    batch = pack(played, discount=1.0)
    batch.set_advantage(registry.bind("credit", "grpo", {})(batch.outcome, batch.traj_group, batch.step_traj))
    return batch


def ours(prompt: int, size: int, choice: str) -> Way:
    """Return one optimiser step with `update.shared_prefix=choice`."""
    m, batch = model(), group(prompt, size)
    optimizer = registry.bind("optimizer", "adamw", {"lr": 1e-6})(m.named_parameters())
    objectives = [("clip", registry.bind("objective", "clip", {}), 1.0)]
    u = Updater(m, optimizer, objectives, registry.bind("reduce", "token_mean", {}), tokens_per_microbatch=16_384, share=shares(m, choice))
    return lambda: u.step(batch)


def trl(prompt: int, size: int, updates: int, *, before: Way = lambda: None, after: Way = lambda: None) -> list[float]:
    """Return the CPU seconds of TRL's updates; `before` and `after` each of them, outside of what is measured, something else is called."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    seconds: list[float] = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        n = len(prompts)
        written = [ids(WRITTEN, i) for i in range(n)]
        return {"prompt_ids": [ids(prompt, -1)] * n, "completion_ids": written, "logprobs": [[-8.0] * WRITTEN] * n}

    class Watch(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            before()
            self.start = time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.process_time() - self.start)
            after()

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, use_cpu=True, bf16=False, gradient_checkpointing=False, beta=0.0, max_steps=updates, learning_rate=1e-6, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, per_device_train_batch_size=size, num_generations=size,
            max_completion_length=WRITTEN,
        )  # fmt: skip
        GRPOTrainer(
            model=model(),
            args=args,
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            train_dataset=Dataset.from_dict({"prompt": ["a"] * updates}),
            processing_class=make_tokenizer(),
            rollout_func=rollout,
            callbacks=[Watch()],
        ).train()
    return seconds


def timed(way: Way) -> float:
    start = time.process_time()
    way()
    return time.process_time() - start


def seconds(prompt: int, size: int, repeat: int) -> dict[str, float]:
    """Return the CPU seconds of one update each way, in turns."""
    ways = {c: ours(prompt, size, c) for c in ("never", "auto")}
    found: dict[str, list[float]] = {c: [] for c in ways}

    def both() -> None:
        for c, way in ways.items():
            found[c].append(timed(way))

    theirs = trl(prompt, size, repeat + 1, after=both)[1:]
    out = {"TRL s": statistics.median(theirs)} | {f"{c} s": statistics.median(x[1:]) for c, x in found.items()}
    saved = {"tokens not computed": ways["auto"]()["shared"]}
    return out | {"auto / never": out["auto s"] / out["never s"], "auto / TRL": out["auto s"] / out["TRL s"]} | saved


def window() -> Batch:
    """Return 4 episodes of 20 steps, each step a context of its own: a prompt in common, a window that moves, what is written."""
    rng, played = random.Random(0), []
    for i in range(4):
        steps = []
        for n in range(20):
            done = Completion("x", rng.choices(range(VOCABULARY), k=16), [-8.0] * 16, version=0)
            steps.append(Step(ids(256, -1) + rng.choices(range(VOCABULARY), k=100), True, done, "x", True, "", 0.0, str(n)))
        played.append(Trajectory(Task("t", "bench", "train"), "g", steps, outcome=float(i % 2), status=Status.TERMINATED))
    return pack(played, discount=1.0)


def scoring(repeat: int) -> dict[str, float]:
    """Return the CPU seconds of log-probabilities without gradient (reference, teacher, old policy) of episodes under a window context."""
    m, batch = model(), window()
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeat + 1):
        for share, spent in found.items():
            spent.append(timed(lambda share=share: score(m, batch, temperature=1.0, budget=16_384, share=share)))  # type: ignore[misc]
    plain, shared = (statistics.median(x[1:]) for x in found.values())
    return {"tokens": batch.n_tokens, "never s": plain, "auto s": shared, "auto / never": shared / plain}


# -- peak memory, each in a process of its own -------------------------------------------------------------------------------------------


def resident(key: str) -> float:
    """Return a line of /proc/self/status in MB (Linux)."""
    return int(re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text("utf-8"))[1]) / 1024  # type: ignore[index]


class Peak:
    """Peak memory above what there is at `start`."""

    def start(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak so far is forgotten
        self.base = resident("VmRSS")

    def stop(self) -> None:
        self.mb = resident("VmHWM") - self.base


def log_probabilities(what: str) -> Way:
    """Return a pass over the large vocabulary, "whole" or in "chunks"."""
    m = model(LARGE, 64, 1)
    if what == "whole":
        forward._MAX_LOGITS = 2**62
    tokens, keep = torch.tensor([ids(257, i) for i in range(4)]), torch.ones(4, 257, dtype=torch.bool)
    return lambda: logprobs(m, tokens, keep)[0].sum().backward()


def measure(part: str, repeat: int) -> dict[str, float]:
    """Do one part in this process: "P N", "P N TRL|never|auto", "window", "whole" or "chunks"."""
    torch.set_num_threads(1)
    words, peak = part.split(), Peak()
    if part == "window":
        return scoring(repeat)
    if len(words) == 2:
        return seconds(int(words[0]), int(words[1]), repeat)
    if words[-1] == "TRL":
        trl(int(words[0]), int(words[1]), 1, before=peak.start, after=peak.stop)
        return {"peak MB": peak.mb}
    way = log_probabilities(part) if len(words) == 1 else ours(int(words[0]), int(words[1]), words[2])
    peak.start()
    spent = timed(way)
    peak.stop()
    return {"peak MB": peak.mb} | ({"s": spent} if len(words) == 1 else {})


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [found[f"{p} {n}"] for p, n in SHAPES]
    worst, best = max(r["auto / never"] for r in rows), rows[-1]["auto / never"]
    memory = found["chunks"]["peak MB"] / found["whole"]["peak MB"]
    return [
        {"what": "update with shared prefixes, times the plain one, worst row", "value": f"{worst:.2f}", "goal": "< 1", "met": worst < 1},
        {"what": "the same, 32 completions behind 1,024 tokens", "value": f"{best:.2f}", "goal": "<= 1/3", "met": best <= 1 / 3},
        {"what": "log-probabilities at vocabulary 151,936, memory of [N, V]", "value": f"{memory:.2f}", "goal": "<= 1/4", "met": memory <= 1 / 4},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures here as JSON too")
    parser.add_argument("--repeat", type=int, default=3, help="updates that count, of each; one more comes before them")
    parser.add_argument("--part", help="only this, in this process")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options.repeat)))
        return
    parts = (
        [f"{p} {n}" for p, n in SHAPES] + [f"{p} {n} {way}" for p, n in SHAPES for way in ("TRL", "never", "auto")] + ["window", "whole", "chunks"]
    )
    found = {}
    for part in parts:
        command = [sys.executable, __file__, "--part", part, "--repeat", str(options.repeat)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found[part] = json.loads(done.stdout.splitlines()[-1])
        print(part, found[part], file=sys.stderr, flush=True)
    write({"parts": found, "goals": goals(found)}, options.out)


if __name__ == "__main__":
    main()
