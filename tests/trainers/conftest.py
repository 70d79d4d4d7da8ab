"""Small real trajectories and a small real model for the trainer's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from agentgym.trainers.batch import Batch, pack
from agentgym.types import Completion, Status, Step, Task, Trajectory

VOCABULARY = 23


def _trajectory(
    group: str,
    states: Sequence[str],
    rewards: Sequence[float],
    *,
    status: Status = Status.TERMINATED,
    outcome: float | None = None,
    rng: np.random.Generator | None = None,
    new_segments: Sequence[int] = (),
) -> Trajectory:
    """Return an episode with two prompt tokens and one to three written ones a step."""
    rng = rng or np.random.default_rng(0)
    steps = []
    for i, (state, reward) in enumerate(zip(states, rewards, strict=True)):
        n = int(rng.integers(1, 4))
        done = Completion("x", rng.integers(0, VOCABULARY, n).tolist(), (-rng.random(n) - 2.5).tolist(), version=3)
        prompt = rng.integers(0, VOCABULARY, 2).tolist()
        steps.append(Step(prompt, i in new_segments, done, "x", True, "o", reward, state))
    out = sum(rewards) if outcome is None else outcome
    return Trajectory(Task(group, "toy", "train"), group, steps, outcome=out, success=out > 0, status=status)


@pytest.fixture
def trajectory() -> Callable[..., Trajectory]:
    return _trajectory


@pytest.fixture
def golden() -> Batch:
    """Two episodes of METHODS 1.6: states a b c with rewards 0 0 10, states a b b with none; discount 0.95."""
    return pack([_trajectory("g", "abc", [0, 0, 10]), _trajectory("g", "abb", [0, 0, 0])], discount=0.95)


@pytest.fixture
def random_batch() -> Callable[..., Batch]:
    def make(seed: int = 0, groups: int = 3, size: int = 4, longest: int = 6, segments: bool = True) -> Batch:
        rng = np.random.default_rng(seed)
        found = []
        for g in range(groups):
            for _ in range(size):
                n = int(rng.integers(1, longest + 1))
                states = [str(x) for x in rng.integers(0, 4, n)]
                breaks = [i for i in range(1, n) if segments and rng.random() < 0.3]
                rewards = rng.integers(0, 3, n).astype(float).tolist()
                found.append(_trajectory(f"g{g}", states, rewards, rng=rng, new_segments=breaks))
        return pack(found, discount=0.95)

    return make


@pytest.fixture(scope="session")
def make_model() -> Callable[[], torch.nn.Module]:
    """Return a maker of equal Qwen3 models with random weights, large enough to give spread-out probabilities."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def make() -> torch.nn.Module:
        config = Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            head_dim=8, max_position_embeddings=128, tie_word_embeddings=True, initializer_range=0.3,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Qwen3ForCausalLM(config).eval()

    return make
