"""Live columns: what the objectives see of a forward pass, against the model's own numbers, in chunks or not."""

from __future__ import annotations

import pytest
import torch

import agentgym.trainers.forward as forward
from agentgym.errors import ConfigError
from agentgym.registry import bind
from agentgym.trainers.forward import Rows, live, rows_of
from agentgym.trainers.update import Updater


def everything(model, rows: Rows, temperature: float) -> torch.Tensor:
    """Return [M, V] the log-probabilities in each token's place; 0 on the first of a row."""
    logq = (model(rows.ids).logits / temperature).log_softmax(-1)
    return rows.flat(torch.cat([torch.zeros_like(logq[:, :1]), logq[:, :-1]], 1))


@pytest.mark.parametrize("limit", [2**26, 23 * 3])
def test_logq_is_the_models_and_has_its_gradient(limit, make_model, random_batch, monkeypatch):
    monkeypatch.setattr(forward, "_MAX_LOGITS", limit)  # the second: chunks of three tokens, recomputed in the backward pass
    model, batch, g = make_model(), random_batch(seed=4), torch.Generator().manual_seed(0)
    for rows in rows_of(batch, 40):
        among = torch.randint(23, (len(rows.index), 5), generator=g)
        wanted = torch.rand(len(rows.index), generator=g) < 0.6
        found = live(model, rows, wanted, temperature=0.7, entropy=True, among=among)
        asked = (wanted & (batch.position[rows.index] > 0)).float()
        full = everything(model, rows, 0.7)
        torch.testing.assert_close(found["logq"], full.gather(-1, among) * asked[:, None], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found["logp"], full.gather(-1, batch.token[rows.index, None])[:, 0] * asked, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found["entropy"], -(full.exp() * full).sum(-1) * asked, atol=1e-5, rtol=1e-4)
        weight = torch.randn(found["logq"].shape, generator=g)
        mine = torch.autograd.grad((weight * found["logq"]).sum(), list(model.parameters()))
        theirs = torch.autograd.grad((weight * full.gather(-1, among) * asked[:, None]).sum(), list(model.parameters()))
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_only_what_is_asked_for_is_there(make_model, random_batch):
    rows = next(rows_of(random_batch(), 40))
    every = torch.ones(len(rows.index), dtype=torch.bool)
    assert set(live(make_model(), rows, every)) == {"logp"}
    assert set(live(make_model(), rows, every, among=torch.zeros(len(every), 2, dtype=torch.int32))) == {"logp", "logq"}


def test_an_objective_that_reads_logq_needs_a_teacher(make_model, random_batch):
    def distil(logq: torch.Tensor, teacher_ids: torch.Tensor) -> torch.Tensor:
        return -logq.mean(-1)

    model = make_model()
    u = Updater(model, torch.optim.SGD(model.parameters(), lr=0.1), [("distil", distil, 1.0)], bind("reduce", "token_mean"))
    with pytest.raises(ConfigError, match="needs 'teacher_ids', which nothing provides"):
        u.check()

    class Wise:
        provides = ("teacher_ids",)

        def fill(self, batch, round):
            raise AssertionError

    u.check(None, [Wise()])
    assert u.needs(None, [Wise()]) == {"teacher_ids"}
    batch = random_batch()
    batch.streams["teacher_ids"] = torch.full((batch.n_tokens, 1), 7)
    losses = [u.step(batch)["loss"] for _ in range(20)]
    assert losses[-1] < losses[0] - 1.0  # the model learns to say 7
