"""Drawing tokens: the cumulative distribution, inverted; by hand, and against plain sums in double precision."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.trainers.policy._sample import _invert, draw, uniforms
from agentgym.types import Sampling

LAST = math.nextafter(1.0, 0.0)


@pytest.mark.parametrize("uniform, token", [(0.0, 1), (0.24, 1), (0.26, 2), (0.49, 2), (0.51, 130), (LAST, 130)])
def test_by_hand(uniform: float, token: int) -> None:
    """Weights 1/4, 1/4 and 1/2 at three places of two blocks; all other tokens have none and are never drawn."""
    weight = torch.zeros(1, 200)
    weight[0, [1, 2, 130]] = torch.tensor([0.25, 0.25, 0.5])
    assert _invert(weight, torch.tensor([uniform], dtype=torch.float64)).item() == token


@settings(deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 0.95]),
    st.sampled_from([1.0, 1e-30, 1e30]),
    st.lists(st.floats(0, LAST), min_size=1, max_size=5),
)
def test_as_plain_sums_in_double_precision(vocab: int, seed: int, gone: float, scale: float, uniform: list[float]) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=(len(uniform), vocab)) ** 4 * (rng.random((len(uniform), vocab)) >= gone)
    weight[:, rng.integers(vocab)] += 1e-3
    weight = (weight * scale).astype(np.float32)
    found = _invert(torch.from_numpy(weight), torch.tensor(uniform, dtype=torch.float64)).numpy()
    for w, u, token in zip(weight.astype(np.float64), uniform, found, strict=True):
        assert w[token] > 0
        upto = w.cumsum() / w.sum()
        assert upto[token] - w[token] / w.sum() <= u + 1e-5 and u <= upto[token] + 1e-5


def test_a_vocabulary_that_no_block_divides_is_as_one_with_tokens_of_no_weight() -> None:
    weight = torch.rand(50, 150)
    u = torch.rand(50, dtype=torch.float64)
    assert torch.equal(_invert(weight, u), _invert(torch.nn.functional.pad(weight, (0, 42)), u))


def test_uniform_numbers_are_uniform_and_independent() -> None:
    n = 20_000
    by_seed = uniforms(np.arange(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64))
    by_index = uniforms(np.full(n, 7, dtype=np.uint64), np.arange(n, dtype=np.uint64))
    for u in (by_seed, by_index):
        assert u.min() >= 0 and u.max() < 1
        counts = np.histogram(u, bins=20, range=(0, 1))[0]
        assert ((counts - n / 20) ** 2 / (n / 20)).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / math.sqrt(n)
    assert abs(np.corrcoef(by_seed, by_index)[0, 1]) < 4 / math.sqrt(n)


@pytest.mark.parametrize(
    ("top_k", "top_p", "want"),
    [
        (0, 1.0, [0.5, 0.25, 0.15, 0.1]),
        (2, 1.0, [2 / 3, 1 / 3, 0, 0]),
        (0, 0.7, [2 / 3, 1 / 3, 0, 0]),  # 0.5 < 0.7 <= 0.75: two tokens
        (0, 0.76, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0]),
        (3, 0.6, [2 / 3, 1 / 3, 0, 0]),  # top-k first, then the mass of what is left: 0.5 / 0.9 < 0.6
        (0, 1e-9, [1, 0, 0, 0]),
        (1, 1.0, [1, 0, 0, 0]),
    ],
)
def test_filters_draw_from_the_right_distribution(top_k: int, top_p: float, want: list[float]) -> None:
    n = 40_000
    logits = torch.tensor([0.15, 0.5, 0.1, 0.25]).log().expand(n, 4)
    u = torch.from_numpy(uniforms(np.arange(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)))
    tokens, logprobs = draw(logits, u, [Sampling(top_k=top_k, top_p=top_p)])
    counts = Counter(tokens.tolist())
    for token, p in zip([1, 3, 0, 2], want, strict=True):
        assert counts[token] / n == pytest.approx(p, abs=0.012) and (p > 0 or counts[token] == 0)
    torch.testing.assert_close(logprobs, logits[0].log_softmax(-1)[tokens])  # unfiltered


def test_temperature_scales_the_logits_and_rows_do_not_mix() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]] * 3)
    how = [Sampling(temperature=0.5), Sampling(temperature=0), Sampling(temperature=2.0, top_k=2)]
    u = torch.tensor([0.9999999] * 3, dtype=torch.float64)
    tokens, logprobs = draw(logits, u, how)
    assert tokens.tolist() == [2, 0, 1]  # row 1 is greedy, row 2 may not take its third token
    want = [(logits[0] / 0.5).log_softmax(-1)[2], logits[0].log_softmax(-1)[0], (logits[0] / 2).log_softmax(-1)[1]]
    torch.testing.assert_close(logprobs, torch.stack(want))


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]] * 2)
    u = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits, u, [Sampling()])[0].tolist() == [1, 1]
