"""Group-relative credit for any data: slow transcriptions of the formulas, and what must hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import registry
from agentgym.trainers.call import call

METHODS = ["grpo", "dr_grpo", "rloo", "gigpo", "hgpo", "pgpo"]
WITH_SINGLETON = ["grpo", "dr_grpo", "rloo", "gigpo"]
NORM = st.sampled_from(["std", "mean"])
EPS = 1e-6


def credit(name, columns, **options):
    found = call(registry.bind("credit", name, options), columns)
    return found[0] if isinstance(found, tuple) else found


def relative(own, values, norm, ddof=1):
    """Return (own − mean) / F_norm, 0 in a group of one and where all are equal."""
    if len(values) < 2 or np.ptp(values) < 1e-9:
        return 0.0
    return (own - np.mean(values)) / (np.std(values, ddof=ddof) + EPS if norm == "std" else 1.0)


def gigpo_by_loop(c, *, norm="std", rows=True, weight=1.0, penalty="advantage"):
    """Transcribe METHODS 1.1 and 1.2 row by row."""
    S, T = len(c["step_traj"]), len(c["outcome"])
    group = [c["traj_group"][t] for t in c["step_traj"]]
    extra = c["step_penalty"] if penalty == "score" else np.zeros(S)
    score, returns = c["outcome"][c["step_traj"]] + extra, c["step_return"] + extra
    out = np.zeros(S)
    for i in range(S):
        mine = [j for j in range(S) if group[j] == group[i]]
        if rows or penalty == "score":
            share = np.array([1.0 if rows else 1 / np.sum(c["step_traj"] == c["step_traj"][j]) for j in mine])
            values, n = score[mine], round(share.sum())
        else:
            values = c["outcome"][[t for t in range(T) if c["traj_group"][t] == group[i]]]
            share, n = np.ones(len(values)), len(values)
        mean = (share * values).sum() / n if n > 1 else 0.0
        std = np.sqrt((share * (values - mean) ** 2).sum() / (n - 1)) if n > 1 else 1.0
        flat = n > 1 and np.ptp(values) < 1e-9
        out[i] = 0.0 if flat else (score[i] - mean) / (std + EPS if norm == "std" else 1.0)
        out[i] += weight * relative(returns[i], [returns[j] for j in range(S) if c["step_state"][j] == c["step_state"][i]], norm)
    return out + (c["step_penalty"] if penalty == "advantage" else 0.0)


def hgpo_by_loop(c, *, norm="std", history=2, alpha=1.0):
    """Transcribe METHODS 1.5: the last k states of a trajectory are the key of level k."""
    S = len(c["step_traj"])

    def key(i, k):
        return tuple(c["step_state"][i - k + 1 : i + 1]) if c["step_index"][i] >= k - 1 else (i, "too short")

    out = np.zeros(S)
    for i in range(S):
        said = []
        for k in range(1, history + 2):
            a = relative(c["step_return"][i], [c["step_return"][j] for j in range(S) if key(j, k) == key(i, k)], norm, ddof=0)
            if abs(a) > 1e-6:
                said.append(((k + 1) ** alpha, a))
        out[i] = sum(w * a for w, a in said) / (sum(w for w, _ in said) + EPS)
    return out


def pgpo_by_loop(c, *, norm="std", alpha=2.0, beta=1.0, discount=1.0, leave_one_out=False):
    """Transcribe METHODS 2.1, with 2.4 for episodes that a limit cut off."""
    S, out = len(c["step_traj"]), []
    R, state, traj = c["step_return"], c["step_state"], c["step_traj"]

    def phi(i):
        visits = [R[j] for j in range(S) if state[j] == state[i] and not (leave_one_out and j == i)]
        return np.mean(visits) if visits else 0.0

    def delta(i):
        if i + 1 < S and traj[i + 1] == traj[i]:
            return discount * phi(i + 1) - phi(i)
        return discount * (0.0 if c["truncated"][traj[i]] else c["outcome"][traj[i]]) - phi(i)

    d = [delta(i) for i in range(S)]
    for i in range(S):
        same = [j for j in range(S) if state[j] == state[i]]
        won = [c["outcome"][t] > 0 for t in range(len(c["outcome"])) if c["traj_group"][t] == c["traj_group"][traj[i]]]
        w = beta * (1 - np.mean(won)) ** alpha
        out.append(relative(R[i], [R[j] for j in same], norm) + w * relative(d[i], [d[j] for j in same], norm))
    return np.array(out)


@st.composite
def episodes(draw, truncated=True):
    """Draw [(group, outcome, truncated, [(state, return, penalty), …]), …]; small whole numbers, so that equal ones are common."""
    number = st.integers(-2, 2).map(float)
    step = st.tuples(st.integers(0, 2), number, st.sampled_from([0.0, 0.0, -0.5]))
    one = st.tuples(st.integers(0, 2), number, st.booleans() if truncated else st.just(False), st.lists(step, min_size=1, max_size=4))
    return draw(st.lists(one, min_size=1, max_size=8))


def columns(found):
    steps = [(t, i, g * 3 + s, r, p) for t, (g, _, _, xs) in enumerate(found) for i, (s, r, p) in enumerate(xs)]
    step_traj, step_index, step_state, step_return, step_penalty = (torch.tensor(x) for x in zip(*steps, strict=True))
    group, outcome, truncated = (torch.tensor(x) for x in zip(*[f[:3] for f in found], strict=True))
    out = {"traj_group": group, "outcome": outcome, "truncated": truncated, "step_traj": step_traj, "step_index": step_index}
    return out | {"step_state": step_state, "step_return": step_return, "step_penalty": step_penalty}


def arrays(c):
    return {n: x.numpy() for n, x in c.items()}


def sums(x, ids):
    return torch.zeros(int(ids.max()) + 1).index_add(0, ids, x)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [*((n, {}, 3.0) for n in WITH_SINGLETON), *((n, {"singleton": "zero"}, 0.0) for n in WITH_SINGLETON), ("hgpo", {}, 0.0), ("pgpo", {}, 0.0)],
)
def test_a_group_of_one(name, options, expected):
    one = columns([(0, 3.0, False, [(0, 3.0, 0.0)])])
    assert credit(name, one, **options).tolist() == pytest.approx([expected], abs=1e-5)


def test_where_the_penalty_goes():
    """Two trajectories of two steps, outcomes 1 and 0, an invalid action in the second; no states in common."""
    two = columns([(0, 1.0, False, [(0, 1.0, 0.0), (1, 1.0, 0.0)]), (0, 0.0, False, [(2, 0.0, -0.5), (2, 0.0, 0.0)])])
    mean = {"norm": "mean"}
    assert credit("gigpo", two, **mean).tolist() == pytest.approx([0.5, 0.5, -1.0, -0.5])
    # Scores 1, 1, −0.5, 0 with mean 0.375; in state 2 the returns are −0.5 and 0.
    assert credit("gigpo", two, penalty="score", **mean).tolist() == pytest.approx([0.625, 0.625, -0.875 - 0.25, -0.375 + 0.25])
    # Over trajectories each row weighs 1/2: the same mean, since both are as long; Σ w (s − mean)² / (2 − 1) = 0.84375
    found = credit("gigpo", two, penalty="score", stats_over="trajectories", step_weight=0.0)
    assert found.tolist() == pytest.approx((np.array([0.625, 0.625, -0.875, -0.375]) / np.sqrt(0.84375)).tolist(), abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(episodes(), NORM, st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["advantage", "score"]))
def test_gigpo_agrees_with_the_loop(found, norm, rows, weight, penalty):
    c = columns(found)
    ours = credit("gigpo", c, norm=norm, stats_over="rows" if rows else "trajectories", step_weight=weight, penalty=penalty)
    assert np.allclose(ours.numpy(), gigpo_by_loop(arrays(c), norm=norm, rows=rows, weight=weight, penalty=penalty), atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(episodes(), NORM, st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.0]))
def test_hgpo_agrees_with_the_loop(found, norm, history, alpha):
    c = columns(found)
    loop = hgpo_by_loop(arrays(c), norm=norm, history=history, alpha=alpha)
    assert np.allclose(credit("hgpo", c, norm=norm, history=history, alpha=alpha).numpy(), loop, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(episodes(), NORM, st.booleans(), st.sampled_from([1.0, 0.9]))
def test_pgpo_agrees_with_the_loop(found, norm, leave_one_out, discount):
    c, options = columns(found), {"norm": norm, "leave_one_out": leave_one_out, "discount": discount}
    assert np.allclose(credit("pgpo", c, **options).numpy(), pgpo_by_loop(arrays(c), **options), atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(episodes(), st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_permuting_trajectories_permutes_advantages(found, name, random):
    order = list(range(len(found)))
    random.shuffle(order)
    ours = credit(name, columns(found)).split([len(f[3]) for f in found])
    moved = credit(name, columns([found[i] for i in order])).split([len(found[i][3]) for i in order])
    for i, part in zip(order, moved, strict=True):
        assert torch.allclose(part, ours[i], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(episodes(truncated=False), st.sampled_from(METHODS), st.floats(-1e3, 1e3, width=32))
def test_equal_outcomes_and_returns_teach_exactly_nothing(found, name, value):
    """Equal outcomes alone are not enough where returns are compared: with a discount, success is worth more the nearer it is."""
    c = columns(found)
    c |= {
        "outcome": torch.full_like(c["outcome"], value),
        "step_return": torch.full_like(c["step_return"], value),
        "step_penalty": 0 * c["step_penalty"],
    }
    assert credit(name, c, **({"singleton": "zero"} if name in WITH_SINGLETON else {})).count_nonzero() == 0


@settings(max_examples=40, deadline=None)
@given(episodes(truncated=False), st.integers(-5, 5))
def test_a_constant_on_outcomes_and_on_returns_changes_nothing(found, c):
    """Not so for a constant on every step's reward (the time left differs), nor for PGPO's weight, which asks whether an outcome is above 0:
    it is held still here (alpha = 0), and r_final of an episode that was cut off is 0 by definition."""
    before = columns(found)
    moved = before | {"outcome": before["outcome"] + c, "step_return": before["step_return"] + c}
    for name in METHODS:
        options = {"singleton": "zero"} if name in WITH_SINGLETON else {"alpha": 0.0} if name == "pgpo" else {}
        assert torch.allclose(credit(name, moved, **options), credit(name, before, **options), atol=1e-4), name


@settings(max_examples=40, deadline=None)
@given(episodes(), NORM)
def test_sums_vanish_where_they_must(found, norm):
    """GRPO and Dr. GRPO: over the trajectories of a group; GiGPO over its rows; PGPO, and HGPO without history, inside every anchor group."""
    c = columns([(g, o, t, [(s, r, 0.0) for s, r, _ in xs]) for g, o, t, xs in found])
    group = c["traj_group"][c["step_traj"]]
    assert sums(credit("gigpo", c, norm=norm, singleton="zero"), group).abs().max() < 1e-4
    starts = c["step_index"] == 0
    for name, options in (("grpo", {"norm": norm}), ("dr_grpo", {}), ("rloo", {})):
        assert sums(credit(name, c, singleton="zero", **options)[starts], c["traj_group"]).abs().max() < 1e-4
    for name, options in (("pgpo", {}), ("hgpo", {"history": 0})):
        assert sums(credit(name, c, norm=norm, **options), c["step_state"]).abs().max() < 1e-3


@settings(max_examples=20, deadline=None)
@given(episodes())
def test_a_longer_history_only_adds_levels(found):
    c = columns(found)
    levels = [call(registry.bind("credit", "hgpo", {"history": k}), c)[1]["levels"] for k in range(4)]
    assert all(a <= b + 1e-6 for a, b in pairwise(levels))
