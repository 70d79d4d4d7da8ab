"""Streams: computed only when named, equal to the model's numbers, frozen where they must be."""

from __future__ import annotations

import pytest
import torch

from agentgym.errors import ConfigError
from agentgym.trainers.forward import logprobs
from agentgym.trainers.streams import Reference, Round, check_read, fill


def test_own_streams_share_a_pass_and_are_right(make_model, random_batch):
    model, batch = make_model(), random_batch()
    fill(batch, {"logp_train", "entropy"}, model, None, Round())
    assert set(batch.streams) == {"logp_train", "entropy"} and set(batch.timings) == {"stream/entropy+logp_train"}
    ids, written = batch.token[batch.segment == 1], batch.sampled[batch.segment == 1]
    logp, entropy = logprobs(model, ids[None], written[None], entropy=True)
    assert torch.allclose(batch.streams["logp_train"][batch.segment == 1], logp[0], atol=1e-5)
    assert torch.allclose(batch.streams["entropy"][batch.segment == 1], entropy[0], atol=1e-5)
    assert not batch.streams["entropy"].requires_grad


def test_reference_stays_while_the_model_moves(make_model, random_batch):
    model, batch = make_model(), random_batch()
    reference = Reference(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    fill(batch, {"ref_logp", "logp_train"}, model, reference, Round())
    fresh = random_batch()
    fill(fresh, {"logp_train"}, make_model(), None, Round())
    assert torch.equal(batch.streams["ref_logp"], fresh.streams["logp_train"])
    assert not torch.allclose(batch.streams["ref_logp"], batch.streams["logp_train"])


def test_reference_of_a_model_with_adapters_is_the_model_without_them(make_model, random_batch):
    peft = pytest.importorskip("peft")
    plain, batch = make_model(), random_batch()
    model = peft.get_peft_model(make_model(), peft.LoraConfig(target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"))
    reference = Reference(model)
    assert reference.own is None
    fill(batch, {"ref_logp", "logp_train"}, model, reference, Round())
    bare = random_batch()
    fill(bare, {"logp_train"}, plain, None, Round())
    assert torch.allclose(batch.streams["ref_logp"], bare.streams["logp_train"], atol=1e-5)
    assert not torch.allclose(batch.streams["ref_logp"], batch.streams["logp_train"], atol=1e-3)


class Teacher:
    """Gives a number per token, or too few."""

    provides = ("teacher_logp", "teacher_mask")

    def __init__(self, missing: int = 0) -> None:
        self.missing = missing

    def fill(self, batch, round):
        return {"teacher_logp": torch.full((batch.n_tokens - self.missing, 5), float(round.update))}


def test_a_teacher_runs_when_somebody_reads_it(make_model, random_batch):
    batch, model = random_batch(), make_model()
    fill(batch, {"teacher_logp"}, model, None, Round(update=7), {"wise": Teacher()})
    assert batch.streams["teacher_logp"].shape == (batch.n_tokens, 5) and batch.streams["teacher_logp"].unique() == 7
    assert set(batch.timings) == {"stream/wise"}
    unread = random_batch()
    fill(unread, {"entropy"}, model, None, Round(), {"wise": Teacher()})
    assert set(unread.streams) == {"entropy"}


def test_refusals(make_model, random_batch):
    batch, model = random_batch(), make_model()
    with pytest.raises(ConfigError, match="Did you mean 'ref_logp'"):
        fill(batch, {"ref_logpp"}, model, None, Round())
    with pytest.raises(ConfigError, match="keeps no reference"):
        fill(batch, {"ref_logp"}, model, None, Round())
    with pytest.raises(ValueError, match="one row per token"):
        fill(batch, {"teacher_logp"}, model, None, Round(), {"wise": Teacher(missing=1)})
    with pytest.raises(ConfigError, match=r"wise provides teacher_logp, teacher_mask, which neither .* leave wise out"):
        check_read({"entropy"}, {"wise": Teacher()})
