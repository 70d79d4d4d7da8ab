"""stepopsd: METHODS 3's golden values, the credit budget by hand, and what must hold for any teacher."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import registry
from agentgym.errors import ConfigError
from agentgym.trainers.call import call

ints = lambda *x: torch.tensor(x, dtype=torch.long)  # noqa: E731


def columns(spans, gaps, advantage_sign=(1.0, -1.0)):
    """Return a group of two trajectories (outcomes 1 and 0: GRPO's A is ±0.7071); spans[t] = numbers of tokens of its steps; gaps [N]."""
    step_traj = [t for t, steps in enumerate(spans) for _ in steps]
    step = [s for s, n in enumerate(n for steps in spans for n in steps) for _ in range(n)]
    n, s = len(step), len(step_traj)
    zero = torch.zeros(n)
    return {
        "outcome": torch.tensor([1.0, 0.0]), "traj_group": ints(0, 0), "step_traj": ints(*step_traj), "step_return": torch.zeros(s),
        "step_state": torch.arange(s), "step": ints(*step), "sampled": torch.ones(n, dtype=torch.bool), "logp_train": zero - 3,
        "teacher_logp": torch.as_tensor(gaps, dtype=torch.float) - 3, "teacher_mask": torch.ones(n),
    }  # fmt: skip


def credit(source, state=None, **options):
    return call(registry.bind("credit", "stepopsd", options), source, state={} if state is None else state)


def base(source, name="grpo"):
    found = call(registry.bind("credit", name), source)
    return torch.where(source["sampled"], found[source["step"]], 0.0)


@pytest.mark.parametrize(
    ("trajectory", "gap", "weight"),
    [(0, 0.5, 1.2), (0, -0.5, 0.8), (1, 0.5, 0.8), (1, -0.1, 1.0500)],  # METHODS 3.4: (A, Δ) = (1, .5), (1, −.5), (−1, .5), (−1, −.1)
)
def test_golden(trajectory, gap, weight):
    gaps = [0.0, 0.0]
    gaps[trajectory] = gap
    source = columns([[1], [1]], gaps)
    found, metrics = credit(source)
    ratio = found / base(source)
    assert ratio[trajectory].item() == pytest.approx(0.8 + 0.2 * weight, abs=1e-4)  # Ã/A: 1.04, .96, .96, 1.01
    assert ratio[1 - trajectory].item() == pytest.approx(1.0)
    assert metrics == {"gap": pytest.approx(abs(gap) / 2), "taught": 1.0, "mix": 0.2}


def test_exp_is_the_other_gain():
    source = columns([[1], [1]], [0.1, 0.0])
    assert (credit(source, gain="exp", mix=1.0)[0] / base(source))[0].item() == pytest.approx(1.10517, abs=1e-4)
    assert (credit(source, mix=1.0)[0] / base(source))[0].item() == pytest.approx(1.04996, abs=1e-4)


def test_the_budget_by_hand():
    """λ = 1: steps of |Ã| 1.2, (1.2, 1.2), (.8, .8) times A: m = 1.2, 1.2, .8, target 1.0667."""
    source = columns([[1, 2, 2], [1]], [9.0, 9, 9, -9, -9, 0])
    found = (credit(source, mix=1.0)[0] / base(source))[:5].tolist()
    assert found == pytest.approx([3.2 / 3] * 5, abs=1e-5)
    without = (credit(source, mix=1.0, cap=1.0)[0] / base(source))[:5].tolist()
    assert without == pytest.approx([1.2, 1.2, 1.2, 0.8, 0.8], abs=1e-5)
    wide = (credit(source, mix=1.0, clip=0.9, cap=1.2)[0] / base(source))[:5].tolist()  # m = 1.9, 1.9, .1; target 1.3; factors 1/1.2 and 1.2
    assert wide == pytest.approx([1.9 / 1.2] * 3 + [0.12] * 2, abs=1e-3)


def test_a_step_without_a_span_is_no_part_of_the_budget():
    source = columns([[1, 2, 2], [1]], [9.0, 9, 9, -9, -9, 0])
    source["teacher_mask"] = torch.tensor([0.0, 0, 0, 1, 1, 0])
    found, metrics = credit(source, mix=1.0)
    assert (found / base(source)).tolist() == pytest.approx([1, 1, 1, 0.8, 0.8, 1], abs=1e-6)
    assert metrics["taught"] == pytest.approx(0.25) and metrics["gap"] == pytest.approx(9.0)


def test_the_mix_decays_to_nothing_and_is_counted_in_the_state():
    source, state = columns([[1, 1], [1]], [0.5, -0.5, 0.0]), {}
    mixes = [credit(source, state, decay=4)[1]["mix"] for _ in range(6)]
    assert mixes == pytest.approx([0.2, 0.15, 0.1, 0.05, 0, 0]) and state == {"rounds": 5}
    assert torch.equal(credit(source, state, decay=4)[0], base(source))
    source["step_return"] = torch.tensor([3.0, 1.0, 2.0])
    assert torch.equal(credit(source, state, decay=4, base="gigpo")[0], base(source, "gigpo"))  # nor does a budget remain


@pytest.mark.parametrize("options", [{"mix": 1.5}, {"decay": 0}, {"clip": 1.0}, {"cap": 0.5}])
def test_wrong_numbers_are_refused(options):
    with pytest.raises(ConfigError, match="credit stepopsd: mix="):
        credit(columns([[1], [1]], [0.0, 0.0]), **options)


@st.composite
def rounds(draw):
    spans = [draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(2)]
    n = sum(map(sum, spans))
    source = columns(spans, draw(st.lists(st.floats(-4, 4, width=32), min_size=n, max_size=n)))
    source["teacher_mask"] = torch.tensor(draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    source["sampled"] = torch.tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    source["step_return"] = torch.tensor(
        draw(st.lists(st.integers(-2, 2), min_size=len(source["step_traj"]), max_size=len(source["step_traj"])))
    ).float()
    source["step_state"] = source["step_state"] % 3
    return source


@settings(max_examples=80, deadline=None)
@given(rounds(), st.sampled_from(["grpo", "gigpo"]), st.sampled_from([0.2, 1.0]), st.sampled_from(["sigmoid", "exp"]))
def test_the_sign_is_preserved_and_nothing_outside_the_spans_moves(source, name, mix, gain):
    found, metrics = credit(source, base=name, mix=mix, gain=gain)
    plain = base(source, name)
    assert torch.equal(found.sign(), plain.sign()) and torch.isfinite(found).all()
    outside = (source["teacher_mask"] == 0) | ~source["sampled"]
    assert torch.equal(found[outside], plain[outside])
    assert all(isinstance(x, float) for x in metrics.values()) and 0 <= metrics["taught"] <= 1
    assert (found.abs() <= 2 * (1 + 0.2) * plain.abs() + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(rounds(), st.sampled_from(["grpo", "gigpo"]))
def test_without_a_teacher_it_is_its_base(source, name):
    source["teacher_mask"] = torch.zeros_like(source["teacher_mask"])
    found, metrics = credit(source, base=name)
    assert torch.equal(found, base(source, name)) and metrics == {"gap": 0.0, "taught": 0.0, "mix": 0.2}


@settings(max_examples=60, deadline=None)
@given(rounds())
def test_the_budget_is_the_same_for_every_step_up_to_the_cap(source):
    source["sampled"] = torch.ones_like(source["sampled"])
    found, _ = credit(source, mix=1.0, cap=100.0)
    inside = source["teacher_mask"] > 0
    for t in (0, 1):
        steps = [s for s in range(len(source["step_traj"])) if source["step_traj"][s] == t]
        means = [float(found[inside & (source["step"] == s)].abs().mean()) for s in steps if (inside & (source["step"] == s)).any()]
        assert len(means) < 2 or max(means) - min(means) < 1e-5
