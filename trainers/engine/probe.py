"""Did the weights arrive? The trainer and the engine score the same tokens, and their answers must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from agentgym.errors import PolicyError

from ..forward import logprobs

# Largest difference of a log-probability that arithmetic explains. Measured on a CPU in float32: 1e-6; half precision rounds at 1e-2.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.3, "float16": 0.1}
LENGTH = 64


def tokens(vocabulary: int, length: int = LENGTH) -> list[int]:
    """Return the probe sequence: ids all over the vocabulary, always the same ones."""
    g = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (max(2, length),), generator=g).tolist()


@torch.no_grad()
def score(model: nn.Module, ids: Sequence[int]) -> list[float]:
    """Return the trainer's log-probability of each token but the first, at temperature 1."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        row = torch.tensor([list(ids)], device=device)
        found, _ = logprobs(model, row, torch.ones_like(row, dtype=torch.bool))
    finally:
        model.train(training)
    return found[0, 1:].tolist()


@dataclass(frozen=True)
class Verdict:
    """What a comparison found: mean and largest |difference| of the log-probabilities."""

    mean: float
    largest: float


def compare(
    trainer: Sequence[float],
    engine: Sequence[float],
    *,
    tolerance: float,
    who: str,
    before: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Verdict:
    """Return how far the two are apart. Raises PolicyError when that is too far, or when the engine stood still while the trainer moved.

    before  the two scores after the last push. An engine that gives bit for bit the old numbers although the trainer's moved has not taken
            the weights, however small the step was.
    """
    gaps = [abs(a - b) for a, b in zip(trainer, engine, strict=True)]
    out = Verdict(sum(gaps) / len(gaps), max(gaps))
    if before is not None:
        moved = max(abs(a - b) for a, b in zip(trainer, before[0], strict=True))
        if moved > tolerance / 10 and list(engine) == list(before[1]):
            raise PolicyError(
                f"{who} did not take the pushed weights: it scores a probe of {len(trainer) + 1} tokens exactly as before, while the trainer's "
                f"log-probabilities moved by up to {moved:.2g}. {_WHY}"
            )
    if not out.largest <= tolerance:  # also when it is not a number
        raise PolicyError(
            f"after a weight push, {who} and the trainer disagree about a probe of {len(trainer) + 1} tokens: log-probabilities differ by up to "
            f"{out.largest:.3g} (mean {out.mean:.3g}), more than the tolerance of {tolerance:g} (policy.tolerance). {_WHY}"
        )
    return out


_WHY = (
    "A rollout with such weights would be off-policy without anybody noticing, so the run stops. Usual causes: (1) tied embeddings, where the "
    "engine keeps its own copy of the head; (2) weights that the engine packed for its kernels when it started, so that new ones go where nobody "
    "reads them (on a CPU the worker extension must be loaded before the model); (3) another dtype or quantisation in the engine (vLLM's own auto "
    "halves float32; say policy.dtype where engine and trainer are meant to differ); (4) another model or vocabulary than the trainer's. Start the "
    "engine with `agentgym serve vllm`, or let the policy start it (no policy.urls)"
)
