"""How fast is policy `hf`? `python tests/bench/bench_rollout.py [--threads 1] [--quick]`

1. Against what one gets without it: transformers' `generate` on the whole context, anew each turn, all episodes in
lockstep.
   8 turns, 32 episodes: a prompt of 256 tokens, then 16 sampled and 40 observed a turn. Goal: at least 4 times the
   turns per CPU second, and at most 10 % of the time outside the model's forward pass.
2. The quick start's shape: 192 episodes, a prompt of 60 tokens, then 5 sampled and 20 observed a turn, 15 turns, 0.34M
parameters.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agentgym.policy import Request
from agentgym.renderer import Renderer
from agentgym.trainers.model import load_model
from agentgym.trainers.policy.hf import hf
from agentgym.types import Sampling


@dataclass(frozen=True)
class Shape:
    """What the episodes look like; `ragged` varies the sampled and observed lengths by a fifth and a half."""

    episodes: int
    turns: int
    prompt: int
    sampled: int
    observed: int
    ragged: bool = False


# hidden, layers, heads, key-value heads, head dimension, feed-forward
MODELS = {"0.34M": (96, 3, 4, 1, 24, 256), "0.82M": (128, 2, 4, 2, 32, 256), "5.0M": (256, 5, 8, 4, 32, 768)}
FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")


def make_model(name: str, vocab: int) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=None, **dict(zip(FIELDS, MODELS[name], strict=True))
    )
    return Qwen3ForCausalLM(config).eval()


def tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(10, 250) for _ in range(n)]


async def episode(policy: hf, i: int, shape: Shape) -> None:
    """Play one episode; nothing but the policy costs anything here."""
    rng = random.Random(i)
    context = tokens(rng, shape.prompt)
    for turn in range(shape.turns):
        spread = (shape.sampled // 5, shape.observed // 2) if shape.ragged else (0, 0)
        how = Sampling(max_tokens=shape.sampled + rng.randint(-spread[0], spread[0]))
        c = await policy.complete(Request(str(i), 1000 * i + turn, tokens=context), how)
        context = context + (c.tokens or []) + tokens(rng, shape.observed + rng.randint(-spread[1], spread[1]))
    policy.release(str(i))


def ours(model: PreTrainedModel, shape: Shape) -> tuple[float, float, dict[str, float]]:
    """Return turns per CPU second, turns per second, and the policy's own counts with the time in all."""
    renderer = Renderer(load_model("tiny")[1])
    renderer.stop_ids = frozenset()  # random weights end when they like; every completion shall have its full length

    async def main() -> tuple[float, float, dict[str, float]]:
        policy = hf(model, renderer)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(episode(policy, i, shape) for i in range(shape.episodes)))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        n = shape.episodes * shape.turns
        return n / cpu, n / wall, policy.stats() | {"wall": wall}

    return asyncio.run(main())


def generate(model: PreTrainedModel, shape: Shape) -> float:
    """Return turns per CPU second of `generate` on the whole context each turn (equal lengths: no padding, the best case for it)."""
    rng = random.Random(0)
    contexts = torch.tensor([tokens(rng, shape.prompt) for _ in range(shape.episodes)])
    cpu = time.process_time()
    for _ in range(shape.turns):
        how: dict[str, Any] = {"max_new_tokens": shape.sampled, "do_sample": True, "pad_token_id": 0}
        contexts = model.generate(contexts, attention_mask=torch.ones_like(contexts), **how)  # type: ignore[operator]
        observed = torch.tensor([tokens(rng, shape.observed) for _ in range(shape.episodes)])
        contexts = torch.cat([contexts, observed], 1)
    return shape.episodes * shape.turns / (time.process_time() - cpu)


def report(name: str, model: PreTrainedModel, shape: Shape) -> float:
    ours(model, Shape(4, 2, 20, 3, 5))  # warm up
    per_cpu, per_s, stats = max((ours(model, shape) for _ in range(3)), key=lambda r: r[0])
    outside = 1 - stats["forward_seconds"] / stats["wall"]
    n = sum(p.numel() for p in model.parameters())
    print(
        f"{name:6} ({n / 1e6:.2f}M, threads: {torch.get_num_threads()}) ours: "
        f"{per_cpu:7.1f} turns/cpu-s {per_s:7.1f} turns/s, outside forward {outside:.1%}",
        flush=True,
    )
    return per_cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only the quick start's shape")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    report("0.34M", make_model("0.34M", 512), Shape(192, 15, 60, 5, 20, ragged=True))
    for name in () if args.quick else ("0.82M", "5.0M"):
        model, shape = make_model(name, 4096), Shape(32, 8, 256, 16, 40)
        per_cpu = report(name, model, shape)
        theirs = generate(model, shape)
        print(
            f"{name:6} generate, whole context anew each turn: {theirs:.1f} turns/cpu-s; ratio {per_cpu / theirs:.1f} (goal 4)",
            flush=True,
        )


if __name__ == "__main__":
    main()
