"""The update: gradients that no micro-batch size changes, honest metrics, and no method's name."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

import agentgym.trainers.update
from agentgym.config import Config, Plugin, Rollout, Update
from agentgym.errors import ConfigError
from agentgym.registry import KINDS, bind, names
from agentgym.trainers.forward import logprobs, rows_of
from agentgym.trainers.update import Schedule, Updater, split

CLIP = ("clip", bind("objective", "clip"), 1.0)
OBSERVED = ("cross_entropy", bind("objective", "cross_entropy", {"observation_weight": 0.3}), 0.5)
ENTROPY = ("entropy", bind("objective", "entropy"), 0.01)


class Plain(torch.optim.SGD):
    """Gradient descent that keeps the gradient it was given."""

    def step(self, closure=None):
        self.seen = torch.cat([p.grad.flatten() for g in self.param_groups for p in g["params"] if p.grad is not None])
        super().step(closure)


def updater(model, objectives=(CLIP,), reduce="token_mean", lr=0.0, **options):
    clip_norm = options.pop("clip_norm", None)
    reduce = bind("reduce", reduce, {"length": 8} if reduce == "fixed_length" else None)
    return Updater(model, Plain(model.parameters(), lr=lr), list(objectives), reduce, clip_norm=clip_norm, **options)


def ready(batch, seed=0):
    batch.set_advantage(torch.randn(batch.n_steps, generator=torch.Generator().manual_seed(seed)))
    return batch


# -- gradients --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["token_mean", "sequence_mean", "fixed_length"])
def test_microbatch_size_never_changes_the_gradient(reduce, make_model, random_batch):
    batch, model, seen = ready(random_batch(seed=1)), make_model(), []
    for budget in (1, 16, 40, 10_000):
        u = updater(model, [CLIP, OBSERVED, ENTROPY], reduce, tokens_per_microbatch=budget)
        metrics = u.step(batch)
        seen.append((u.optimizer.seen, metrics["loss"], metrics["clip_fraction"]))
    for gradient, loss, clipped in seen[:-1]:
        assert torch.allclose(gradient, seen[-1][0], rtol=1e-4, atol=1e-6)
        assert (loss, clipped) == (pytest.approx(seen[-1][1], abs=1e-6), pytest.approx(seen[-1][2], abs=1e-6))


def test_order_of_trajectories_never_changes_the_gradient(make_model, trajectory):
    import numpy as np

    from agentgym.trainers.batch import pack

    rng, model, seen = np.random.default_rng(0), make_model(), []
    episodes = [trajectory(f"g{i % 2}", "ab" * n, [0] * n + [i % 3] * n, rng=rng) for i, n in enumerate((1, 3, 2, 1))]
    for order in ((0, 1, 2, 3), (2, 0, 3, 1)):
        batch = pack([episodes[i] for i in order], discount=0.95)
        batch.set_advantage(bind("credit", "grpo")(batch.outcome, batch.traj_group, batch.step_traj))
        u = updater(model, tokens_per_microbatch=20)
        u.step(batch)
        seen.append(u.optimizer.seen)
    assert torch.allclose(*seen, rtol=1e-4, atol=1e-6)


def test_the_layout_never_changes_the_gradient(make_model, trajectory):
    """One segment per episode, or one per step that reads everything before it: the same words in the same places give the same gradient."""
    import copy

    import numpy as np

    from agentgym.trainers.batch import pack

    rng, model, seen = np.random.default_rng(0), make_model(), []
    episodes = [trajectory(f"g{i % 2}", "ab" * n, [0] * n + [i % 3] * n, rng=rng) for i, n in enumerate((1, 3, 2, 1))]
    apart = copy.deepcopy(episodes)
    for t in apart:
        context: list[int] = []
        for s in t.steps:
            context += s.prompt
            s.prompt, s.new_segment = list(context), True
            context += s.completion.tokens
    for layout in (episodes, apart):
        batch = pack(layout, discount=0.95)
        batch.set_advantage(bind("credit", "gigpo")(batch.outcome, batch.traj_group, batch.step_traj, batch.step_return, batch.step_state))
        u = updater(model, tokens_per_microbatch=40)
        metrics = u.step(batch)
        seen.append((batch.n_segments, metrics["loss"], u.optimizer.seen))
    assert seen[0][0] == 4 and seen[1][0] == 14
    assert seen[0][1] == pytest.approx(seen[1][1], abs=1e-5)
    assert torch.allclose(seen[0][2], seen[1][2], rtol=1e-4, atol=1e-5)


def test_gradient_is_that_of_the_whole_loss_written_out(make_model, random_batch):
    """One padded forward over everything, the loss as a formula: the reference that the machinery must agree with."""
    batch, model = ready(random_batch(seed=2)), make_model()
    u = updater(model, [CLIP], tokens_per_microbatch=24, temperature=0.7)
    u.step(batch)
    rows = [batch.token[batch.segment == s] for s in range(batch.n_segments)]
    logq = [(model(r[None]).logits[0, :-1] / 0.7).log_softmax(-1) for r in rows]
    logp = torch.cat([torch.cat([torch.zeros(1), q.gather(-1, r[1:, None])[:, 0]]) for q, r in zip(logq, rows, strict=True)])
    loss = CLIP[1](logp, batch.logp_old, batch.advantage)[0][batch.sampled].mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    assert torch.allclose(u.optimizer.seen, torch.cat([g.flatten() for g in grads]), rtol=1e-4, atol=1e-6)


def test_selecting_everything_equals_selecting_nothing(make_model, random_batch):
    batch, model = ready(random_batch()), make_model()
    u = updater(model)
    u.step(batch)
    whole = u.optimizer.seen
    u.step(batch, torch.arange(batch.n_trajectories))
    assert torch.equal(whole, u.optimizer.seen)


def test_weights_multiply_and_a_weight_of_zero_mutes(make_model, random_batch):
    batch, model = ready(random_batch()), make_model()

    def second_half(step: torch.Tensor) -> torch.Tensor:
        return (step >= 15).float()

    u = updater(model, weights=[second_half])
    u.step(batch)
    muted = u.optimizer.seen
    keep = batch.sampled & (batch.step >= 15)
    batch.advantage = torch.where(keep, batch.advantage, 1e6)  # what is muted can be anything
    u.step(batch)
    assert torch.allclose(muted, u.optimizer.seen) and muted.abs().sum() > 0


# -- the optimiser step -----------------------------------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_is_dropped_and_counted(make_model, random_batch):
    batch, model = ready(random_batch()), make_model()
    before = [p.clone() for p in model.parameters()]
    batch.advantage = batch.advantage.clone()
    batch.advantage[batch.sampled.nonzero()[0]] = float("nan")
    u = updater(model, lr=0.1)
    metrics = u.step(batch)
    assert metrics["skipped"] == 1 and metrics["updates"] == 0 and u.updates == 0 and math.isnan(metrics["grad_norm"])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert u.step(ready(batch))["skipped"] == 0


def test_clipping_and_schedule(make_model, random_batch):
    batch, model = ready(random_batch()), make_model()
    u = updater(model, lr=0.4, clip_norm=0.01, schedule=Schedule(warmup=4))
    metrics = u.step(batch)
    assert metrics["grad_norm"] > 0.01 and u.optimizer.seen.norm().item() == pytest.approx(0.01, rel=1e-3)
    assert metrics["lr"] == pytest.approx(0.1) and u.step(batch)["lr"] == pytest.approx(0.2)


@pytest.mark.parametrize(("decay", "expected"), [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5)])
def test_schedule(decay, expected):
    s = Schedule(warmup=2, decay=decay, total=10)
    assert [s(0), s(1), s(2), s(6)] == pytest.approx([0.5, 1.0, 1.0, expected])
    assert s(10) == pytest.approx(1.0 if decay == "constant" else 0.0)


def test_schedule_refuses_nonsense():
    with pytest.raises(ConfigError, match="Did you mean 'cosine'"):
        Schedule(decay="cosin")
    with pytest.raises(ConfigError, match="more optimiser steps than the warm-up"):
        Schedule(warmup=5, decay="linear", total=5)


def test_run_covers_every_trajectory_once_per_pass(make_model, random_batch):
    batch = ready(random_batch())
    parts = list(split(batch, 5, torch.Generator().manual_seed(0)))
    assert len(parts) == 5 and sorted(torch.cat(parts).tolist()) == list(range(12))
    assert len(list(split(batch, 50, torch.Generator()))) == 12
    u = updater(make_model(), lr=1e-3)
    metrics = u.run(batch, passes=2, minibatches=5, generator=torch.Generator().manual_seed(0))
    assert metrics["updates"] == 10 == u.updates and metrics["tokens"] == 2 * batch.n_tokens and 0 <= metrics["padding"] < 1
    assert batch.weight is None  # the caller's batch is left as it was


def test_learning_raises_the_likelihood_of_what_was_good(make_model, random_batch):
    batch = ready(random_batch())
    batch.advantage = torch.where(batch.sampled, 1.0, 0.0)
    u = updater(make_model(), [OBSERVED], lr=0.05, clip_norm=1.0)
    first = u.step(batch)["nll"]
    for _ in range(20):
        last = u.step(batch)["nll"]
    assert last < 0.9 * first


def test_memory_of_an_objective_is_kept_and_rehearsal_leaves_none(make_model, random_batch):
    def counting(logp: torch.Tensor, *, state: dict) -> torch.Tensor:
        state["calls"] = state.get("calls", 0) + 1
        return -logp

    u = updater(make_model(), [("counting", counting, 1.0)])
    u.step(random_batch())
    assert u.state_dict()["state"] == {"counting": {"calls": 1}}


# -- metrics and refusals ---------------------------------------------------------------------------------------------------------


def test_metrics_are_means_over_the_tokens_that_count(make_model, random_batch):
    batch = ready(random_batch())
    metrics = updater(make_model(), [CLIP, OBSERVED]).step(batch)
    model, total = make_model(), []
    for s in range(batch.n_segments):
        ids = batch.token[batch.segment == s]
        logp, _ = logprobs(model, ids[None], torch.ones(1, len(ids), dtype=torch.bool))
        total += (-logp[0])[batch.sampled[batch.segment == s]].tolist()
    assert metrics["loss"] == pytest.approx(metrics["loss/clip"] + 0.5 * metrics["loss/cross_entropy"], abs=1e-6)
    assert {"clip_fraction", "approx_kl", "grad_norm", "tokens", "padding", "seconds"} <= set(metrics)
    assert metrics["nll"] == pytest.approx(sum(total) / len(total), abs=1e-4)


def test_wrong_shapes_and_missing_columns_are_refused_before_the_forward_pass(make_model, random_batch):
    batch = random_batch()
    with pytest.raises(ConfigError, match="clip needs 'advantage'"):
        updater(make_model()).step(batch)
    with pytest.raises(ValueError, match="objective wrong returned shape"):
        updater(make_model(), [("wrong", lambda logp: logp.sum(), 1.0)]).step(batch)
    with pytest.raises(ValueError, match="one number per token"):
        updater(make_model(), weights=[lambda outcome: outcome]).step(ready(batch))


def test_from_config_binds_and_checks(make_model):
    objectives = {"clip": Plugin("clip", {"high": 0.28}), "kl": Plugin("kl", {"coefficient": 0.01})}
    config = Config(objectives=objectives, weights={"mismatch": Plugin("mismatch")}, update=Update(count=3, passes=2, clip_norm=0.0))
    u = Updater.from_config(config, make_model())
    assert [(n, c) for n, _, c in u.objectives] == [("clip", 1.0), ("kl", 0.01)] and u.clip_norm is None
    credit = bind("credit", "gigpo")
    u.check(credit)
    assert u.needs(credit) == {"ref_logp", "logp_train"}
    with pytest.raises(ConfigError, match="clip needs 'advantage', which nothing provides"):
        u.check(None)
    with pytest.raises(ConfigError, match="nothing to learn from"):
        Updater.from_config(Config(), make_model())


def test_the_temperature_of_drawing_does_not_apply_to_demonstrations(make_model):
    objectives = {"cross_entropy": Plugin("cross_entropy")}
    drawn = Config(objectives=objectives, rollout=Rollout(temperature=0.7))
    shown = Config(objectives=objectives, rollout=Rollout(temperature=0.7), policy=Plugin("expert"))
    assert Updater.from_config(drawn, make_model()).temperature == 0.7
    assert Updater.from_config(shown, make_model()).temperature == 1.0


def test_no_method_is_named_in_the_update():
    text = Path(agentgym.trainers.update.__file__).read_text("utf-8")
    code = re.sub(r'"""[\s\S]*?"""|#.*', "", text)
    code = code.replace("entropy", "")  # a column, as well as an objective
    methods = {n for kind in KINDS if kind in ("credit", "objective", "weight", "reduce", "optimizer", "sampler") for n in names(kind)}
    assert not [m for m in methods if re.search(rf"\b{m}\b", code)]


# -- forward ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_the_models(temperature, make_model, monkeypatch):
    from agentgym.trainers import forward

    model, ids = make_model(), torch.randint(0, 23, (3, 9), generator=torch.Generator().manual_seed(0))
    keep = torch.rand(3, 9, generator=torch.Generator().manual_seed(1)) < 0.6
    logq = (model(ids).logits[:, :-1] / temperature).log_softmax(-1)
    expected = torch.nn.functional.pad(logq.gather(-1, ids[:, 1:, None])[..., 0], (1, 0)) * keep
    for limit in (2**26, 23 * 4):  # whole, and in chunks of four tokens
        monkeypatch.setattr(forward, "_MAX_LOGITS", limit)
        found, entropy = logprobs(model, ids, keep, temperature=temperature, entropy=True)
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.allclose(entropy[:, 1:], -(logq.exp() * logq).sum(-1) * keep[:, 1:], atol=1e-5) and entropy[:, 0].count_nonzero() == 0
        whole = torch.autograd.grad(expected.sum(), model.parameters(), retain_graph=True)
        for a, b in zip(torch.autograd.grad(found.sum(), model.parameters()), whole, strict=True):
            assert torch.allclose(a, b, atol=1e-4)


def test_logprobs_of_a_model_that_is_no_transformer_of_ours():
    model = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7))
    ids = torch.tensor([[1, 2, 3]])
    found, _ = logprobs(model, ids, torch.ones(1, 3, dtype=torch.bool))
    assert torch.allclose(found[0, 1:], model(ids)[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0])
    with pytest.raises(ValueError, match="temperature is 0"):
        logprobs(model, ids, torch.ones(1, 3, dtype=torch.bool), temperature=0)


def test_rows_hold_every_token_once_within_the_budget(random_batch):
    batch = random_batch(groups=8, longest=12)
    for budget in (1, 50, 200):
        rows = list(rows_of(batch, budget))
        assert sorted(torch.cat([r.index for r in rows]).tolist()) == list(range(batch.n_tokens))
        assert all(r.ids.numel() <= budget or len(r.ids) == 1 for r in rows)
        for r in rows:
            assert torch.equal(r.flat(r.ids), batch.token[r.index])
            assert torch.equal(r.segment().diff() != 0, batch.segment[r.index].diff() != 0)


def test_attention_needs_no_mask(make_model, monkeypatch):
    """The fast causal kernel is used: no mask is built for right-padded rows."""
    import torch.nn.functional as F

    seen, original = [], F.scaled_dot_product_attention

    def spy(*args, **options):
        seen.append((options.get("attn_mask"), options.get("is_causal")))
        return original(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    logprobs(make_model(), torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool))
    assert seen and set(seen) == {(None, True)}
