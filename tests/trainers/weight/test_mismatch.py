"""mismatch, masked, icepop, geometric, veto: corrections of what engine and trainer disagree about (METHODS 8.4), worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym.registry import bind

# Two segments. ρ by token: 1/2, 4, (read), 1 | 1e-5, 2. The token that was only read carries a difference that must not count.
RATIO = torch.tensor([0.5, 4.0, 1.0, 1.0, 1e-5, 2.0])
SAMPLED = torch.tensor([True, True, False, True, True, True])
SEGMENT = torch.tensor([0, 0, 0, 0, 1, 1])
OLD = torch.tensor([-1.0, -2.0, 0.0, -0.5, -1.0, -3.0])
TRAIN = OLD + RATIO.log() + torch.tensor([0, 0, -9.0, 0, 0, 0])


def weight(name: str, **options: Any) -> list[float]:
    found = bind("weight", name, options)(TRAIN.clone().requires_grad_(), OLD, SAMPLED, SEGMENT)
    assert not found.requires_grad and found.dtype == torch.float32
    return found.tolist()


def test_mismatch_caps_and_lifts() -> None:
    assert weight("mismatch") == pytest.approx([0.5, 2, 1, 1, 1e-5, 2])
    assert weight("mismatch", cap=5.0) == pytest.approx([0.5, 4, 1, 1, 1e-5, 2])
    assert weight("mismatch", low=0.1, cap=1.5) == pytest.approx([0.5, 1.5, 1, 1, 0.1, 1.5])


def test_mismatch_by_sequence_is_the_product() -> None:
    assert weight("mismatch", level="sequence") == pytest.approx([2, 2, 2, 2, 2e-5, 2e-5])  # 1/2 · 4 · 1 = 2; 1e-5 · 2
    assert weight("mismatch", level="sequence", cap=1.25) == pytest.approx([1.25] * 4 + [2e-5] * 2)


def test_masked_drops_on_both_sides() -> None:
    assert weight("masked", low=0.4, high=3.0) == pytest.approx([0.5, 0, 1, 1, 0, 2])
    assert weight("masked", level="sequence", high=3.0) == pytest.approx([2, 2, 2, 2, 0, 0])
    # The mean over the five written tokens is (0.5 + 0 + 1 + 0 + 2) / 5 = 0.7.
    assert weight("masked", low=0.4, high=3.0, normalize=True) == pytest.approx([5 / 7, 0, 10 / 7, 10 / 7, 0, 20 / 7])
    assert weight("masked", low=90.0, high=99.0, normalize=True) == [0.0] * 6  # nothing left to divide by


def test_icepop_keeps_the_ratio_inside_the_band() -> None:
    assert weight("icepop", alpha=0.4) == pytest.approx([0.5, 4, 1, 1, 0, 2])
    assert weight("icepop", alpha=0.4, beta=2.5) == pytest.approx([0.5, 0, 1, 1, 0, 2])


def test_geometric_keeps_whole_sequences() -> None:
    # exp(mean log ρ): 2^(1/3) = 1.2599; (2e-5)^(1/2) = 0.00447. The read token would pull the first far down.
    assert weight("geometric", low=1.25, high=1.27) == [1, 1, 1, 1, 0, 0]
    assert weight("geometric", low=0.004, high=0.005) == [0, 0, 0, 0, 1, 1]
    assert weight("geometric") == [0.0] * 6
    same = bind("weight", "geometric")(OLD + 0.0009, OLD, SAMPLED, SEGMENT)  # e^0.0009 = 1.0009 is inside the default band
    assert same.tolist() == [1.0] * 6


def test_veto_mutes_the_sequence_of_one_impossible_token() -> None:
    assert weight("veto") == [1, 1, 1, 1, 0, 0]
    assert weight("veto", threshold=0.6) == [0.0] * 6
    assert weight("veto", threshold=1e-6) == [1.0] * 6


@given(st.lists(st.tuples(st.floats(-8, 0), st.floats(-8, 0), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30))
def test_what_holds_for_any_numbers(rows: list[tuple[float, float, bool, int]]) -> None:
    train, old = torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
    sampled, segment = torch.tensor([r[2] for r in rows]), torch.tensor(sorted(r[3] for r in rows))
    columns = (train, old, sampled, segment)
    capped, kept, pop = (bind("weight", n, o)(*columns) for n, o in (("mismatch", {}), ("masked", {}), ("icepop", {"beta": 2.0})))
    assert (kept <= capped).all() and torch.equal(kept, pop)  # a mask is never above a cap; icepop is masked with another band
    for name in ("geometric", "veto"):
        found = bind("weight", name)(*columns)
        for s in segment.unique():
            assert found[segment == s].unique().tolist() in ([0.0], [1.0])  # all or nothing
    moved = train + torch.where(sampled, 0.0, 5.0)
    for name in ("mismatch", "masked", "icepop", "geometric", "veto"):
        assert torch.equal(bind("weight", name)(*columns)[sampled], bind("weight", name)(moved, *columns[1:])[sampled])


def test_equal_numbers_change_nothing() -> None:
    for name in ("mismatch", "masked", "icepop", "geometric", "veto"):
        found = bind("weight", name)(OLD, OLD, SAMPLED, SEGMENT)
        assert found.tolist() == [1.0] * 6 and math.isfinite(float(found.sum()))
