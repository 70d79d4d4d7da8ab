"""grpo, rloo and gigpo: golden values by hand, a slow transcription of GiGPO's formulas, and what must hold for any data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.trainers.call import call

COLUMNS = ("outcome", "traj_group", "step_traj", "step_return", "step_state")


def gigpo_by_loop(outcome, traj_group, step_traj, step_return, step_state, *, norm="std", rows=True, weight=1.0, eps=1e-6):
    """Transcribe METHODS 1.1 and 1.2 row by row."""
    S = len(step_traj)
    out = np.zeros(S)
    for i in range(S):
        g = traj_group[step_traj[i]]
        if rows:
            scores = [outcome[step_traj[j]] for j in range(S) if traj_group[step_traj[j]] == g]
        else:
            scores = [outcome[j] for j in range(len(outcome)) if traj_group[j] == g]
        own = outcome[step_traj[i]]
        mean, std = (0.0, 1.0) if len(scores) == 1 else (np.mean(scores), np.std(scores, ddof=1))
        out[i] = (own - mean) / (std + eps) if norm == "std" else own - mean
        visits = [step_return[j] for j in range(S) if step_state[j] == step_state[i]]
        if len(visits) > 1:
            a = step_return[i] - np.mean(visits)
            out[i] += weight * (a / (np.std(visits, ddof=1) + eps) if norm == "std" else a)
    return out


@st.composite
def rows(draw):
    """Draw the columns of a few groups; rewards are small whole numbers, so that equal outcomes are common."""
    groups = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    traj_group = [g for g, n in enumerate(groups) for _ in range(n)]
    length = draw(st.lists(st.integers(1, 4), min_size=len(traj_group), max_size=len(traj_group)))
    step_traj = [t for t, n in enumerate(length) for _ in range(n)]
    S = len(step_traj)
    outcome = draw(st.lists(st.integers(-2, 2), min_size=len(traj_group), max_size=len(traj_group)))
    step_return = draw(st.lists(st.integers(-2, 2), min_size=S, max_size=S))
    state = draw(st.lists(st.integers(0, 2), min_size=S, max_size=S))
    step_state = [traj_group[t] * 3 + s for t, s in zip(step_traj, state, strict=True)]
    ints = (torch.tensor(x) for x in (traj_group, step_traj, step_state))
    g, t, s = ints
    numbers = {"outcome": torch.tensor(outcome).float(), "step_return": torch.tensor(step_return).float()}
    return numbers | {"traj_group": g, "step_traj": t, "step_state": s}


def credit(name, columns, **options):
    return call(registry.bind("credit", name, options), columns)


# -- by hand ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [("grpo", {}, [1.5, -0.5, -0.5, -0.5]), ("grpo", {"norm": "mean"}, [0.75, -0.25, -0.25, -0.25]), ("rloo", {}, [1, -1 / 3, -1 / 3, -1 / 3])],
)
def test_one_success_in_four(name, options, expected):
    columns = {"outcome": torch.tensor([1.0, 0, 0, 0]), "traj_group": torch.zeros(4, dtype=torch.long), "step_traj": torch.arange(4)}
    assert credit(name, columns, **options).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"step_weight": 0.0}, [0.9129] * 3, [-0.9129] * 3),
        ({"step_weight": 0.0, "stats_over": "trajectories"}, [0.7071] * 3, [-0.7071] * 3),
        ({"step_weight": 0.0, "norm": "mean"}, [5.0] * 3, [-5.0] * 3),
        ({}, [0.9129 + 0.7071, 0.9129 + 1.1547, 0.9129], [-0.9129 - 0.7071, -0.9129 - 0.5774, -0.9129 - 0.5774]),
        ({"norm": "mean"}, [5 + 4.5125, 5 + 6.3333, 5], [-5 - 4.5125, -5 - 3.1667, -5 - 3.1667]),
    ],
)
def test_gigpo_golden(golden, options, first, second):
    assert golden.step_return.tolist() == pytest.approx([9.025, 9.5, 10, 0, 0, 0])
    found = call(registry.bind("credit", "gigpo", options), golden)
    assert found.tolist() == pytest.approx([*first, *second], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "expected"), [("grpo", {}, 3.0), ("rloo", {}, 3.0), ("gigpo", {}, 3.0), ("grpo", {"singleton": "zero"}, 0.0)]
)
def test_a_group_of_one_keeps_its_score(name, options, expected):
    one = {"outcome": torch.tensor([3.0]), "step_return": torch.tensor([3.0])}
    one |= {n: torch.tensor([0]) for n in ("traj_group", "step_traj", "step_state")}
    assert credit(name, one, **options).tolist() == pytest.approx([expected], abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "rloo", "gigpo"])
def test_unknown_options_and_values_are_refused(name):
    with pytest.raises(ConfigError, match="has no option"):
        registry.bind("credit", name, {"nrom": "std"})
    with pytest.raises(ConfigError, match="singleton"):
        registry.bind("credit", name, {"singleton": "maybe"})


# -- for any data -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(rows(), st.sampled_from(["std", "mean"]), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]))
def test_gigpo_agrees_with_the_loop(columns, norm, by_rows, weight):
    found = credit("gigpo", columns, norm=norm, stats_over="rows" if by_rows else "trajectories", step_weight=weight)
    slow = gigpo_by_loop(*(columns[n].numpy() for n in COLUMNS), norm=norm, rows=by_rows, weight=weight)
    assert np.allclose(found.numpy(), slow, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(rows(), st.sampled_from(["grpo", "rloo", "gigpo"]), st.randoms(use_true_random=False))
def test_permuting_steps_permutes_advantages(columns, name, random):
    order = list(range(len(columns["step_traj"])))
    random.shuffle(order)
    moved = dict(columns) | {n: columns[n][order] for n in ("step_traj", "step_return", "step_state")}
    assert torch.allclose(credit(name, moved), credit(name, columns)[order], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(rows(), st.sampled_from(["grpo", "rloo", "gigpo"]), st.randoms(use_true_random=False))
def test_permuting_trajectories_permutes_advantages(columns, name, random):
    order = list(range(len(columns["outcome"])))
    random.shuffle(order)
    place = torch.empty(len(order), dtype=torch.long)
    place[order] = torch.arange(len(order))
    moved = columns | {"outcome": columns["outcome"][order], "traj_group": columns["traj_group"][order], "step_traj": place[columns["step_traj"]]}
    assert torch.allclose(credit(name, moved), credit(name, columns), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(rows(), st.sampled_from(["grpo", "rloo", "gigpo"]), st.floats(-1e3, 1e3, width=32))
def test_equal_outcomes_teach_exactly_nothing(columns, name, value):
    same = columns | {"outcome": torch.full_like(columns["outcome"], value), "step_return": torch.full_like(columns["step_return"], value)}
    assert credit(name, same, singleton="zero").count_nonzero() == 0


def test_sums_that_differ_by_rounding_are_equal():
    noisy = torch.tensor([0.3, 0.1 + 0.2, 0.30000001, 0.29999998])
    assert credit("grpo", {"outcome": noisy, "traj_group": torch.zeros(4, dtype=torch.long), "step_traj": torch.arange(4)}).count_nonzero() == 0


@settings(max_examples=40, deadline=None)
@given(rows(), st.integers(-5, 5))
def test_a_constant_on_outcomes_and_on_returns_changes_nothing(columns, c):
    """The step part compares returns: it is blind to a constant on returns, not to one on every step's reward (the time left differs)."""
    moved = columns | {"outcome": columns["outcome"] + c, "step_return": columns["step_return"] + c}
    for name in ("grpo", "gigpo", "rloo"):
        assert torch.allclose(credit(name, moved, singleton="zero"), credit(name, columns, singleton="zero"), atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(rows(), st.sampled_from(["std", "mean"]))
def test_sums_vanish_inside_every_group(columns, norm):
    of_step = columns["traj_group"][columns["step_traj"]]
    found = credit("gigpo", columns, norm=norm, singleton="zero")  # over rows: the episode part sums to 0 over steps too
    assert torch.zeros(int(of_step.max()) + 1).index_add(0, of_step, found).abs().max() < 1e-4
    first = torch.tensor([columns["step_traj"].tolist().index(t) for t in range(len(columns["outcome"]))])
    per_trajectory = credit("grpo", columns, norm=norm, singleton="zero")[first]
    assert torch.zeros(int(of_step.max()) + 1).index_add(0, columns["traj_group"], per_trajectory).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["grpo", "rloo", "gigpo"])
def test_pure(golden, name):
    before = {n: getattr(golden, n).clone() for n in COLUMNS}
    first = call(registry.bind("credit", name), golden)
    assert torch.equal(first, call(registry.bind("credit", name), golden)) and first.shape == (golden.n_steps,)
    assert all(torch.equal(getattr(golden, n), x) for n, x in before.items())
