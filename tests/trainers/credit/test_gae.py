"""Credit over tokens and turns: by hand, against the padded recursion of METHODS 8.1, and what must hold for any data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import registry
from agentgym.trainers.batch import Batch, pack
from agentgym.trainers.call import call
from agentgym.trainers.chain import advantages, chain_of_tokens, chain_of_turns
from agentgym.types import Completion, Status, Step, Task, Trajectory

CRITIC = ["gae", "skip_gae", "step_gae"]
METHODS = [*CRITIC, "reinforce_pp", "reinforce_pp_baseline"]


def credit(name, batch, **options):
    found = call(registry.bind("credit", name, options), batch)
    return found[0] if isinstance(found, tuple) else found


def episode(steps, *, truncated=False, group="g"):
    """Return a trajectory of (tokens read, tokens written, reward, penalty); its outcome is the sum of rewards."""
    made = [
        Step([1] * read, False, Completion("", [2] * wrote, [-1.0] * wrote), "", p == 0, "", r, str(i), p)
        for i, (read, wrote, r, p) in enumerate(steps)
    ]
    outcome = sum(s[2] for s in steps)
    return Trajectory(Task("t", "toy", "train"), group, made, outcome=outcome, status=Status.TRUNCATED if truncated else Status.TERMINATED)


def with_values(trajectories, value, next_value=None):
    """Pack, with value and next_value given for the written tokens only; what was read has 99, which nobody may look at."""
    batch = pack(trajectories, discount=1.0)
    for name, numbers in (("value", value), ("next_value", next_value or [0.0] * len(value))):
        batch.streams[name] = torch.full((batch.n_tokens,), 99.0)
        batch.streams[name][batch.sampled] = torch.tensor(numbers)
    return batch


@st.composite
def played(draw):
    """Draw trajectories with values: some steps read nothing, some write nothing, some episodes are cut off, some write nothing at all."""
    step = st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([0.0, 1.0, -2.0]), st.sampled_from([0.0, 0.0, -0.5]))
    one = st.tuples(st.lists(step, min_size=1, max_size=4), st.booleans(), st.integers(0, 1))
    found = draw(st.lists(one, min_size=1, max_size=5))
    made = [episode([(max(s[0], i == 0), *s[1:]) for i, s in enumerate(steps)], truncated=cut, group=str(g)) for steps, cut, g in found]
    made.append(episode([(1, 1, 0.0, 0.0)]))  # there is always something to train on
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    return [(t, *rng.normal(size=(2, sum(len(s.prompt) + len(s.completion.tokens) for s in t.steps)))) for t in made]


def batch_of(found):
    batch = pack([t for t, _, _ in found], discount=1.0)
    for i, name in ((1, "value"), (2, "next_value")):
        batch.streams[name] = torch.tensor(np.concatenate([f[i] for f in found])).float()
    return batch


def by_trajectory(batch, x):
    """Return what a method gave, one tensor per trajectory, on the tokens that were written."""
    x = x[batch.step] if x.shape == (batch.n_steps,) else x
    traj = batch.step_traj[batch.step]
    return [x[(traj == t) & batch.sampled] for t in range(batch.n_trajectories)]


def by_loop(batch: Batch, *, discount, lam, value=True, bootstrap=True):
    """Transcribe METHODS 8.1: backwards over all tokens, V and A carried unchanged through those that were read."""
    out = np.zeros(batch.n_tokens)
    traj = batch.step_traj[batch.step].numpy()
    reward = np.zeros(batch.n_tokens)
    for s in range(batch.n_steps):  # on the last token written in the step, or before it in the trajectory
        before = [n for n in range(batch.n_tokens) if batch.sampled[n] and batch.step[n] <= s and traj[n] == batch.step_traj[s]]
        if before:
            reward[before[-1]] += float(batch.step_reward[s] + batch.step_penalty[s])
    for t in range(batch.n_trajectories):
        mine = [n for n in range(batch.n_tokens) if traj[n] == t]
        wrote = [n for n in mine if batch.sampled[n]]
        rate = lam(len(wrote)) if callable(lam) else lam
        following = running = 0.0
        if wrote and bootstrap and value and batch.truncated[t]:
            following = float(batch.streams["next_value"][wrote[-1]])
        for n in reversed(mine):
            if not batch.sampled[n]:
                continue  # both are carried through
            v = float(batch.streams["value"][n]) if value else 0.0
            running = reward[n] + discount * following - v + discount * rate * running
            following, out[n] = v, running
    return out


def whitened(x, mask):
    out, inside = np.zeros(len(x)), x[mask]
    if len(inside) > 1 and np.ptp(inside) > 1e-9:
        out[mask] = (inside - inside.mean()) / np.sqrt(inside.var(ddof=1) + 1e-8)
    return out


# -- by hand ----------------------------------------------------------------------------------------------------------------------


def test_two_turns():
    """METHODS 7.3: V = (.2, .5), r = (0, 1), γ = 1, λ = .95 → A = (0.775, 0.5), by token and by turn, with something read in between."""
    batch = with_values([episode([(2, 1, 0.0, 0.0), (3, 1, 1.0, 0.0)])], [0.2, 0.5])
    options = {"discount": 1.0, "lam": 0.95}
    assert credit("gae", batch, whiten=False, **options)[batch.sampled].tolist() == pytest.approx([0.775, 0.5])
    for make in (chain_of_tokens, chain_of_turns):
        chain = make(batch.sampled, batch.step, batch.step_traj)
        streams = (batch.streams["value"], batch.streams["next_value"])
        found = advantages(chain, batch.step_reward, *streams, batch.truncated, truncation="bootstrap", **options)
        assert found.tolist() == pytest.approx([0.775, 0.5])
    assert credit("step_gae", batch, **options).tolist() == pytest.approx([0.7071, -0.7071], abs=1e-4)
    assert credit("step_gae", batch, unbiased=False, **options).tolist() == pytest.approx([1.0, -1.0], abs=1e-4)


def test_turns_of_several_tokens():
    """The value of a turn is that at its first token; an invalid action costs c_inv before the batch is normalised, and nothing in r_t."""
    batch = with_values([episode([(2, 2, 0.0, 0.0), (1, 3, 1.0, -0.1)])], [0.2, 7, 0.5, 8, 9])
    found = credit("step_gae", batch, discount=1.0, lam=0.95)  # (0.775, 0.4): mean 0.5875, std 0.26517
    assert found.tolist() == pytest.approx([0.7071, -0.7071], abs=1e-4)
    two = with_values([episode([(2, 1, 0.0, 0.0)]), episode([(1, 1, 0.0, -0.1)]), episode([(1, 1, 1.0, 0.0)])], [0.0] * 3)
    expected = (np.array([0, -0.1, 1]) - 0.3) / np.std([0, -0.1, 1], ddof=1)
    assert credit("step_gae", two).tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_lambda_grows_with_what_a_trajectory_wrote():
    batch = with_values([episode([(1, 60, 0.0, 0.0), (5, 40, 1.0, 0.0)])], [0.0] * 100)
    found, metrics = call(registry.bind("credit", "skip_gae"), batch)
    assert metrics == {"lambda": pytest.approx(0.993333, abs=1e-6)}
    assert found[batch.sampled][[0, 98, 99]].tolist() == pytest.approx([0.993333**99, 0.993333, 1.0], rel=1e-4)
    short = with_values([episode([(1, 1, 1.0, 0.0)])], [0.5])
    assert call(registry.bind("credit", "skip_gae", {"alpha": 0.5}), short)[1]["lambda"] == 0.0  # 1 − 1/0.5 is below 0


@pytest.mark.parametrize(("name", "last"), [("gae", 0.5), ("skip_gae", 0.5)])
def test_cut_off_is_not_the_end(name, last):
    """γ · next_value = 0.9 · 2 follows the last written token of an episode that a limit cut off, nothing one that ended."""
    options = {"discount": 0.9, "whiten": False}
    for truncated, truncation, after in ((True, "bootstrap", 1.8), (True, "terminal", 0.0), (False, "bootstrap", 0.0)):
        batch = with_values([episode([(1, 1, 0.0, 0.0), (1, 2, 1.0, 0.0)], truncated=truncated)], [0.1, 0.2, last], [5, 5, 2.0])
        found = credit(name, batch, truncation=truncation, **options)
        assert float(found[batch.sampled][-1]) == pytest.approx(1 + after - last)


def test_step_gae_ends_at_the_horizon_unless_told_otherwise():
    two = [episode([(1, 2, 0.0, 0.0)], truncated=True), episode([(1, 1, 1.0, 0.0)]), episode([(1, 1, 0.0, 0.0)])]
    batch = with_values(two, [0.0, 0.0, 0.0, 0.0], [7.0, 1.0, 7.0, 7.0])
    ended, cut = credit("step_gae", batch, discount=1.0), credit("step_gae", batch, discount=1.0, truncation="bootstrap")
    assert ended.tolist() == pytest.approx([-0.57735, 1.1547, -0.57735], abs=1e-4)
    assert cut.tolist() == pytest.approx([0.57735, 0.57735, -1.1547], abs=1e-4)


def test_reinforce_pp_by_hand():
    """Returns with γ = 0.5, nothing for what was read: (0.5 · 1, 1) and (−1): mean 1/6, variance 13/12."""
    batch = pack([episode([(2, 1, 0.0, 0.0), (3, 1, 1.0, 0.0)]), episode([(1, 1, -0.5, -0.5)])], discount=1.0)
    expected = (np.array([0.5, 1, -1]) - 1 / 6) / np.sqrt(13 / 12)
    assert credit("reinforce_pp", batch, discount=0.5)[batch.sampled].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_reinforce_pp_baseline_by_hand():
    """Outcomes 1 and 0 against their mean, on 1 and 3 tokens: (0.5, −0.5, −0.5, −0.5): mean −0.25, std 0.5."""
    batch = pack([episode([(2, 1, 1.0, 0.0)]), episode([(1, 2, 0.0, 0.0), (1, 1, 0.0, 0.0)])], discount=1.0)
    assert credit("reinforce_pp_baseline", batch)[batch.sampled].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_an_empty_completion_passes_its_reward_on():
    """What led to it was written before; with nothing written before, it is nobody's."""
    batch = pack([episode([(1, 2, 0.0, 0.0), (1, 0, 3.0, 0.0)]), episode([(1, 0, 5.0, 0.0), (1, 1, 1.0, 0.0)])], discount=1.0)
    assert chain_of_tokens(batch.sampled, batch.step, batch.step_traj).collect(batch.step_reward).tolist() == [0, 3, 1]
    assert chain_of_turns(batch.sampled, batch.step, batch.step_traj).collect(batch.step_reward).tolist() == [3, 1]


# -- for any data -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(played(), st.sampled_from([1.0, 0.9]), st.sampled_from([0.0, 0.95, 1.0]), st.booleans(), st.booleans())
def test_gae_agrees_with_the_loop(found, discount, lam, whiten, bootstrap):
    batch = batch_of(found)
    truncation = "bootstrap" if bootstrap else "terminal"
    loop = by_loop(batch, discount=discount, lam=lam, bootstrap=bootstrap)
    loop = whitened(loop, batch.sampled.numpy()) if whiten else loop
    assert np.allclose(credit("gae", batch, discount=discount, lam=lam, whiten=whiten, truncation=truncation).numpy(), loop, atol=1e-4)
    loop = by_loop(batch, discount=discount, lam=lambda n: max(0.0, 1 - 1 / (1.5 * n)) if n else 0.0, bootstrap=bootstrap)
    assert np.allclose(credit("skip_gae", batch, discount=discount, truncation=truncation).numpy(), loop, atol=1e-4)
    loop = whitened(by_loop(batch, discount=discount, lam=1.0, value=False), batch.sampled.numpy())
    assert np.allclose(credit("reinforce_pp", batch, discount=discount).numpy(), loop, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(played(), st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_permuting_trajectories_permutes_advantages(found, name, random):
    order = list(range(len(found)))
    random.shuffle(order)
    batch, moved = batch_of(found), batch_of([found[i] for i in order])
    ours = by_trajectory(batch, credit(name, batch))
    for i, part in zip(order, by_trajectory(moved, credit(name, moved)), strict=True):
        assert torch.allclose(part, ours[i], atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(played(), st.sampled_from(METHODS))
def test_finite_and_only_on_what_was_written(found, name):
    batch = batch_of(found)
    x = credit(name, batch)
    assert torch.isfinite(x).all() and x.dtype == torch.float32
    wrote = batch.sampled if name != "step_gae" else torch.bincount(batch.step[batch.sampled], minlength=batch.n_steps) > 0
    assert x[~wrote].count_nonzero() == 0
    if name != "skip_gae":  # normalised over the batch
        assert abs(float(x.double().sum())) < 1e-3


@settings(max_examples=30, deadline=None)
@given(played(), st.sampled_from(["gae", "skip_gae"]))
def test_what_the_model_read_has_no_value(found, name):
    batch = batch_of(found)
    before = credit(name, batch)
    batch.streams = {n: torch.where(batch.sampled, x, -50.0) for n, x in batch.streams.items()}
    assert torch.equal(credit(name, batch), before)


@settings(max_examples=30, deadline=None)
@given(played(), st.sampled_from([-3.0, 2.0]))
def test_a_constant_on_what_is_still_to_come_changes_nothing(found, c):
    """With γ = 1: on the last reward and on all values, or, for REINFORCE++, on the last reward alone; not on every reward. And on outcomes."""
    batch = batch_of([f for f in found if any(s.completion.tokens for s in f[0].steps)])
    last = torch.cat([batch.step_traj[1:] != batch.step_traj[:-1], torch.tensor([True])])
    moved = dataclasses.replace(batch, step_reward=batch.step_reward + c * last, outcome=batch.outcome + c)
    assert torch.allclose(credit("reinforce_pp", moved), credit("reinforce_pp", batch), atol=1e-4)
    assert torch.allclose(
        credit("reinforce_pp_baseline", moved, singleton="zero"), credit("reinforce_pp_baseline", batch, singleton="zero"), atol=1e-4
    )
    moved.streams = {n: x + c for n, x in batch.streams.items()}
    for name in CRITIC:
        options = {"discount": 1.0, "truncation": "terminal"}
        assert torch.allclose(credit(name, moved, **options), credit(name, batch, **options), atol=1e-3), name


@settings(max_examples=30, deadline=None)
@given(played())
def test_with_lambda_one_the_advantage_is_the_return_minus_the_value(found):
    batch = batch_of(found)
    a = credit("gae", batch, whiten=False, truncation="terminal")[batch.sampled]
    chain = chain_of_tokens(batch.sampled, batch.step, batch.step_traj)
    r = chain.collect(batch.step_reward + batch.step_penalty)
    to_come = torch.stack([r[n:][chain.traj[n:] == chain.traj[n]].sum() for n in range(len(r))])
    assert torch.allclose(a + batch.streams["value"][batch.sampled], to_come.float(), atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_a_single_step_and_equal_steps_teach_nothing_where_the_batch_is_the_measure(name):
    one = with_values([episode([(1, 1, 1.0, 0.0)])], [0.25])
    alike = with_values([episode([(1, 1, 1.0, 0.0)])] * 3, [0.25] * 3)
    for batch in (one, alike):
        x = credit(name, batch)
        assert (x[batch.sampled] == 0.75).all() if name == "skip_gae" else x.count_nonzero() == 0
