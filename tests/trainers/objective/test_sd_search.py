"""sd_search: the golden divergence, agreement with the full vocabulary's value and gradient, the lower bound, and what must never be NaN."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.registry import bind
from agentgym.trainers.call import call


def objective(logq, teacher_logq, mask=None, step=None, step_traj=None):
    n = len(logq)
    columns = {
        "teacher_logq": teacher_logq,
        "teacher_mask": torch.ones(n) if mask is None else mask,
        "step": torch.zeros(n, dtype=torch.long) if step is None else step,
        "step_traj": torch.tensor([0]) if step_traj is None else step_traj,
    }
    return call(bind("objective", "sd_search"), columns, logq=logq)


def full_jsd(p, q):
    """Return the divergence over the whole vocabulary from probabilities, in float64."""
    p, q = p.double(), q.double()
    m = ((p + q) / 2).clamp(min=1e-300)
    return 0.5 * (torch.xlogy(p, p / m) + torch.xlogy(q, q / m)).sum(-1)


def test_golden():
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.4, 0.4, 0.2]])
    loss, extra = objective(q.log(), p.log())
    assert loss.item() == pytest.approx(0.046201, abs=1e-6) and extra["jsd"].item() == pytest.approx(0.046201, abs=1e-6)
    two, _ = objective(q.log()[:, :2], p.log()[:, :2])  # the third is the rest: the same three parts
    assert two.item() == pytest.approx(0.046201, abs=1e-6)
    one, extra = objective(q.log()[:, :1], p.log()[:, :1])  # (.7, .3) and (.4, .6)
    assert one.item() == pytest.approx(float(full_jsd(torch.tensor([0.7, 0.3]), torch.tensor([0.4, 0.6]))), abs=1e-6)
    assert extra["jsd_rest"].item() == pytest.approx(0.3, abs=1e-6)


def test_a_place_that_is_not_used_counts_nothing():
    p, q = torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.tensor([[0.4, 0.4, 0.2]]).log()
    unused = torch.full((1, 2), -torch.inf)
    logq = torch.cat([q, q[:, :2]], 1).requires_grad_()  # the student's numbers stand in the second places too
    loss, _ = objective(logq, torch.cat([p, unused], 1))
    assert loss.item() == pytest.approx(0.046201, abs=1e-6)
    loss.sum().backward()
    assert (logq.grad[:, 3:] == 0).all() and torch.isfinite(logq.grad).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([3, 17, 60]), st.sampled_from([0.5, 2.0, 6.0]))
def test_value_and_gradient_are_those_of_the_whole_vocabulary_when_it_is_covered(seed, vocabulary, spread):
    g = torch.Generator().manual_seed(seed)
    logits = (spread * torch.randn(4, vocabulary, generator=g)).requires_grad_()
    teacher = (spread * torch.randn(4, vocabulary, generator=g)).log_softmax(-1)
    order = torch.stack([torch.randperm(vocabulary, generator=g) for _ in range(4)])
    loss, _ = objective(logits.log_softmax(-1).gather(1, order), teacher.gather(1, order))
    exact = full_jsd(teacher.exp(), logits.double().softmax(-1))
    torch.testing.assert_close(loss.double(), exact, atol=2e-6, rtol=1e-4)
    (mine,) = torch.autograd.grad(loss.sum(), logits)
    (right,) = torch.autograd.grad(exact.sum(), logits)
    torch.testing.assert_close(mine, right.float(), atol=3e-6, rtol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([0.1, 1.0, 5.0, 30.0]))
def test_the_union_with_a_rest_is_a_lower_bound(seed, k, spread):
    g = torch.Generator().manual_seed(seed)
    p, q = (spread * torch.randn(2, 3, 20, generator=g)).log_softmax(-1)
    ids = torch.stack([torch.randperm(20, generator=g)[:k] for _ in range(3)])
    loss, _ = objective(q.gather(1, ids), p.gather(1, ids))
    assert (loss >= -1e-6).all() and (loss.double() <= full_jsd(p.exp(), q.exp()) + 3e-6).all()


def test_the_mean_is_over_rollouts_that_searched_and_then_over_their_tokens():
    """Three trajectories: two query tokens over two steps, one query token, none."""
    mask, step, traj = torch.tensor([1.0, 0, 1, 1, 0]), torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 0, 1, 2])
    logq = torch.randn(5, 4).log_softmax(-1)
    loss, extra = objective(logq, torch.randn(5, 4).log_softmax(-1), mask, step, traj)
    assert extra["weight"].tolist() == [0.5, 0, 0.5, 1, 0]
    mean = call(bind("reduce", "token_mean"), {"segment": traj[step]}, loss=loss, weight=extra["weight"])
    assert mean.item() == pytest.approx(((loss[0] + loss[2]) / 2 + loss[3]).item() / 2, abs=1e-6)


def test_no_query_at_all_is_a_loss_of_zero_and_no_nan():
    logq = torch.zeros(3, 1, requires_grad=True)  # what the update gives where nothing was computed
    loss, extra = objective(logq, torch.full((3, 1), -torch.inf), torch.zeros(3))
    total = call(bind("reduce", "token_mean"), {"segment": torch.zeros(3, dtype=torch.long)}, loss=loss, weight=extra["weight"])
    total.backward()
    assert total.item() == 0 and loss.tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    assert extra["weight"].sum() == 0 and (logq.grad == 0).all()


@pytest.mark.parametrize("shift", [0.0, -50.0, -300.0])
def test_extremes_stay_finite(shift):
    """One knows what it wants, the other wants something else; probabilities that float32 cannot hold; a student with no rest at all."""
    student, teacher = torch.tensor([[0.0, shift - 20, shift - 90]]), torch.tensor([[shift - 90, 0.0, shift - 20]])
    logits = student.clone().requires_grad_()
    loss, _ = objective(logits.log_softmax(-1), teacher.log_softmax(-1))
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.693147, abs=1e-4) and torch.isfinite(logits.grad).all()
    narrow = torch.zeros(1, 1).requires_grad_()  # all of its probability on one id, where the teacher has a third
    loss, _ = objective(narrow, torch.tensor([[1 / 3]]).log())
    loss.sum().backward()
    assert torch.isfinite(loss).all() and narrow.grad.item() > 0.1  # less of it, please: the rest is not forgotten
