"""Segment operations: against loops, and what must hold at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.trainers.ops import discounted_returns, is_last, normalize, scan, whiten

NUMBERS = st.floats(-10, 10, width=32)


@given(st.lists(st.tuples(NUMBERS, st.floats(-1, 1, width=32)), max_size=30))
def test_scan_is_the_recursion(pairs):
    x, decay = (torch.tensor([p[i] for p in pairs], dtype=torch.float64) for i in (0, 1))
    found = scan(x, decay)
    assert found.dtype == torch.float64 and found.shape == x.shape
    for n in range(len(x)):
        assert float(found[n]) == pytest.approx(float(x[n]) + (float(decay[n] * found[n + 1]) if n + 1 < len(x) else 0.0), abs=1e-12)


def test_a_broken_episode_does_not_reach_the_one_before():
    assert scan(torch.tensor([1.0, 2.0, math.inf]), torch.tensor([0.5, 0.0, 0.0])).tolist() == [2.0, 2.0, math.inf]


def test_discounted_returns_by_hand():
    found = discounted_returns(np.array([0.0, 0, 10, 1, 2]), np.array([4, 4, 4, 0, 0]), 0.95)
    assert found.tolist() == pytest.approx([9.025, 9.5, 10, 2.9, 2])
    assert discounted_returns(np.zeros(0), np.zeros(0, dtype=np.int64), 0.9).shape == (0,)


def test_is_last():
    assert is_last(torch.tensor([3, 3, 1, 2, 2])).tolist() == [False, True, True, False, True]
    assert is_last(torch.zeros(0, dtype=torch.long)).tolist() == []


@given(st.lists(NUMBERS, min_size=2, max_size=20))
def test_whiten(numbers):
    x = torch.tensor(numbers)
    found = whiten(x)
    assert abs(float(found.double().sum())) < 1e-4
    if x.std() > 0.01:
        assert float(found.std()) == pytest.approx(1, abs=1e-3)
        assert torch.allclose(whiten(x + 100), found, atol=1e-2)


@pytest.mark.parametrize("x", [[], [3.0], [2.0, 2.0], [0.3, 0.1 + 0.2, 0.30000001]])
def test_whiten_has_nothing_to_say_without_a_spread(x):
    assert whiten(torch.tensor(x)).count_nonzero() == 0


@given(st.lists(st.tuples(NUMBERS, st.integers(1, 4)), min_size=2, max_size=6), st.sampled_from(["std", "mean"]), st.booleans())
def test_rows_that_share_a_weight_of_one_are_one_row(pairs, norm, unbiased):
    value, copies = torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])
    row = torch.arange(len(pairs)).repeat_interleave(copies)
    options = {"norm": norm, "eps": 1e-6, "unbiased": unbiased}
    once = normalize(value, torch.zeros_like(copies), **options)
    shared = normalize(value[row], torch.zeros_like(row), weight=(1 / copies)[row], **options)
    assert torch.allclose(shared, once[row], atol=1e-4)


def test_a_lone_row_that_is_shared():
    x, group, weight = torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3, dtype=torch.long), torch.full((3,), 1 / 3)
    assert normalize(x, group, norm="mean", eps=0.0, weight=weight).tolist() == [1, 3, 2]
    assert normalize(x, group, norm="std", eps=0.0, weight=weight, singleton="zero").tolist() == [0, 0, 0]
